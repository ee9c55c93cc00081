"""How large a batch is on all replicas together."""

from __future__ import annotations

from typing import Any

from k80keras._keras import tf
from k80keras.errors import InvalidArgumentError


def global_batch_size(per_replica_batch_size: int, strategy: Any = None) -> int:
    """Returns the samples in a training step on all replicas together.

    It is what `Dataset.batch` and `fit(batch_size=)` need: TensorFlow shares each
    batch out to the replicas.

    Args:
      per_replica_batch_size: Int. Samples in a step on one replica.
      strategy: The `tf.distribute` strategy to train with. Defaults to the one in
        whose scope this is called.

    Raises:
      InvalidArgumentError: If the size is not an int of 1 or more.
    """
    size = per_replica_batch_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidArgumentError(
            "global_batch_size: per_replica_batch_size must be an int of 1 or more. "
            f"Received: {size!r}. Say, 64"
        )
    strategy = strategy or tf.distribute.get_strategy()
    return size * int(strategy.num_replicas_in_sync)
