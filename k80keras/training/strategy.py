"""Where a run trains: one device, all dies of this machine, or several workers."""

from __future__ import annotations

from typing import Any

from k80keras._keras import tf
from k80keras.distribute.mirrored import mirrored_strategy
from k80keras.distribute.multi_worker import multi_worker_strategy
from k80keras.errors import InvalidArgumentError
from k80keras.training.config import RunConfig


def make_strategy(config: RunConfig) -> Any:
    """Returns the `tf.distribute` strategy that a run asks for.

    Call it before TensorFlow makes anything.

    Raises:
      InvalidArgumentError: If it can't be had, or replicas would go short of
        images.
    """
    strategy = tf.distribute.get_strategy()
    if config.workers:
        strategy = multi_worker_strategy()
    elif config.mirrored:
        strategy = mirrored_strategy()
    replicas = int(strategy.num_replicas_in_sync)
    size = config.batch_size
    # With fewer, the last batch can't be shared out evenly with the one before.
    if size % replicas or size < replicas**2:
        raise InvalidArgumentError(
            f"--batch_size must be a multiple of {replicas}, the number of replicas, "
            f"and at least {replicas**2}. Received: --batch_size={size}. Say, "
            f"--batch_size={replicas * 32}"
        )
    return strategy


def require_same_on_all(strategy: Any, first_epoch: int) -> None:
    """Checks that all workers go on from the same epoch.

    Raises:
      InvalidArgumentError: If they don't: they read different folders.
    """
    if not getattr(strategy.extended, "_in_multi_worker_mode", bool)():
        return

    @tf.function
    def everybodys() -> Any:
        own = strategy.run(lambda: tf.constant([first_epoch]))
        return strategy.gather(own, axis=0)

    found = sorted(set(everybodys().numpy().tolist()))
    if len(found) > 1:
        epochs = " and ".join(map(str, found))
        raise InvalidArgumentError(
            "--output_dir must be one folder for all workers, which go on from what "
            f"it holds. Received: folders with {epochs} complete epochs. Put it on a "
            "file system that all of them reach"
        )
