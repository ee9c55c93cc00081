"""Batches that leave no replica without a sample."""

from __future__ import annotations

from typing import Any

from k80keras._keras import tf
from k80keras.data.structure import batch_size_of
from k80keras.errors import InvalidArgumentError

_REMAINDERS = ("merge", "drop")


def batches_for_replicas(
    data: Any,
    global_batch_size: int | None = None,
    strategy: Any = None,
    remainder: str = "merge",
    shuffle: bool = False,
) -> Any:
    """Returns a dataset whose every batch has a sample for each replica.

    A `tf.distribute` strategy cuts a batch of n samples into shares of
    ceil(n / replicas). The last batch of an epoch may be too small for that: a
    replica then gets no sample at all, averages nothing, and a
    `BatchNormalization` layer, a loss or a metric becomes NaN. Training and
    validation data both need this.

    Args:
      data: `tf.data.Dataset`, of batches or, with `global_batch_size`, of single
        samples; or arrays of one length (an array, or a tuple or dict of them),
        which then lie in host memory and not on a die.
      global_batch_size: Int. Samples in a training step on all replicas together,
        a multiple of their number. Needed for arrays; leave it out for a dataset
        that is batched already.
      strategy: The `tf.distribute` strategy to train with. Defaults to the one in
        whose scope this is called.
      remainder: `"merge"`: where the last batch is too small, it and the one
        before it are shared evenly between two steps, so that each sample is seen
        once and the number of steps stays. That takes at least as many samples
        per replica as there are replicas. `"drop"`: batches that are too small
        are left out. Defaults to `"merge"`.
      shuffle: Bool. Whether to shuffle arrays anew for each epoch (as
        `fit(x, y)` does). Defaults to `False`.

    Returns:
      `tf.data.Dataset` of batches. Unless you have chosen a shard policy, each of
      several workers reads all data and keeps its share (`DATA`).

    Raises:
      InvalidArgumentError: If the data or an argument break a rule above. What
        shows only while samples are read is a `tf.errors.InvalidArgumentError`.
    """
    strategy = strategy or tf.distribute.get_strategy()
    replicas = int(strategy.num_replicas_in_sync)
    is_dataset = isinstance(data, tf.data.Dataset)
    _check(data, is_dataset, global_batch_size, replicas, remainder, shuffle)
    if not is_dataset:
        arrays = _on_host(data)
        samples = _common_length(tf.nest.flatten(arrays))
        # Positions are shuffled and shared out, and whole batches gathered by
        # them: no sample is ever touched alone.
        data = tf.data.Dataset.range(samples)
        if shuffle:
            data = data.shuffle(samples)
    count = None
    if global_batch_size is not None:
        count = int(data.cardinality())
        data = data.batch(global_batch_size)
    dataset = _guarded(data, replicas, remainder, count)
    if not is_dataset:

        def gather(at: Any) -> Any:
            return tf.nest.map_structure(lambda array: tf.gather(array, at), arrays)

        dataset = dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return _with_shard_policy(dataset)


def _guarded(dataset: Any, replicas: int, remainder: str, count: int | None) -> Any:
    """Returns batches that feed all replicas.

    Args:
      dataset: `tf.data.Dataset` of batches.
      replicas: Int.
      remainder: As above.
      count: Int. How many samples there are; below 0, or `None`, if unknown.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    for spec in specs:
        if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank:
            raise _error(
                "a batch must be of dense tensors whose first axis counts samples",
                spec,
                "For a dataset of single samples say global_batch_size; make ragged "
                "and sparse tensors dense",
            )
    size = batch_size_of(dataset)
    if size is not None and size % replicas:
        raise _error(
            f"a batch must be of a multiple of {replicas} samples, an equal share for "
            "each replica",
            f"batches of {size}",
            f"Make it {size + -size % replicas}",
        )
    rest = None
    if size is not None and count is not None and count >= 0:
        rest = count % size
        if 0 < count < size and not _feeds(count, replicas):
            raise _error(
                f"the data must have enough samples for {replicas} replicas",
                f"{count} samples",
                "Use fewer replicas",
            )
    is_whole = all(spec.shape[0] is not None for spec in specs)
    if replicas == 1 or is_whole or rest == 0 or (rest and _feeds(rest, replicas)):
        return dataset
    if remainder == "drop":
        fed = dataset.filter(lambda *batch: _feeds(_length(batch), replicas))
        if rest is None:
            return fed
        steps = int(dataset.cardinality()) - 1
        return fed.apply(tf.data.experimental.assert_cardinality(steps))
    for spec in specs:
        if not spec.shape[1:].is_fully_defined():
            raise _error(
                'remainder="merge" needs batches of one shape beyond the first axis',
                spec,
                'Use remainder="drop"',
            )
    if size is not None and size < replicas**2:
        raise _error(
            f'remainder="merge" needs batches of {replicas}x{replicas} samples or '
            f"more for {replicas} replicas",
            f"batches of {size}",
            f'Use remainder="drop", or batches of {replicas**2}',
        )
    return _merged(dataset, replicas)


def _merged(dataset: Any, replicas: int) -> Any:
    """Returns the same samples, the last two batches as even as need be.

    Batches come out two steps late. Which are the last two shows when the first of
    two empty ones arrives, which are appended here.
    """
    spec = dataset.element_spec
    nothing = tf.nest.map_structure(_no_samples, spec)
    ends = tf.data.Dataset.from_tensors((nothing, True)).repeat(2)

    def unmarked(*batch: Any) -> Any:
        return tf.nest.pack_sequence_as(spec, tf.nest.flatten(batch)), False

    def step(last_two: Any, marked: Any) -> Any:
        (before, last), (batch, is_end) = last_two, marked
        size = _length(last)
        allowed = is_end | (size == 0) | (size >= replicas**2)
        rule = (
            "k80keras.data.replicas.batches_for_replicas: each batch but the last must "
            f'have {replicas**2} samples or more, or remainder be "drop". Received:'
        )
        with tf.control_dependencies([tf.debugging.Assert(allowed, [rule, size])]):
            first, second = tf.cond(
                is_end & (size > 0),
                lambda: _evened_out(before, last, replicas),
                lambda: (before, last),
            )
        return (second, batch), first

    marked = dataset.map(unmarked).concatenate(ends)
    return marked.scan((nothing, nothing), step).skip(2)


def _evened_out(before: Any, last: Any, replicas: int) -> tuple[Any, Any]:
    """Returns two batches of the same samples that both feed all replicas."""
    size = _length(last)

    def split() -> Any:
        both = tf.nest.map_structure(lambda *two: tf.concat(two, 0), before, last)
        total = _length(both)
        # The first is a multiple of the replicas. The second is not if the total
        # isn't: of q * replicas + odd samples each gets one if q + odd >= replicas.
        odd = total % replicas
        fewest = tf.where(odd == 0, 1, replicas - odd)
        second = tf.maximum(fewest, total // (2 * replicas)) * replicas + odd
        return tuple(
            tf.nest.map_structure(lambda values: values[part], both)
            for part in (slice(None, total - second), slice(total - second, None))
        )

    def keep() -> Any:
        rule = (
            "k80keras.data.replicas.batches_for_replicas: the data must have a sample "
            f"for each of {replicas} replicas. Received:"
        )
        fed = tf.debugging.Assert(_feeds(size, replicas), [rule, size, "samples"])
        with tf.control_dependencies([fed]):
            return tf.nest.map_structure(tf.identity, (before, last))

    alone = _length(before) == 0
    return tf.cond(alone | _feeds(size, replicas), keep, split)  # type: ignore


def _feeds(samples: Any, replicas: int) -> Any:
    """Returns whether shares of ceil(samples / replicas) leave one for the last."""
    return (replicas - 1) * -(-samples // replicas) < samples


def _length(batch: Any) -> Any:
    return tf.shape(tf.nest.flatten(batch)[0])[0]


def _no_samples(spec: Any) -> Any:
    return tf.zeros([0, *spec.shape[1:]], spec.dtype)


def _with_shard_policy(dataset: Any) -> Any:
    policies = tf.data.experimental.AutoShardPolicy
    chosen = dataset.options().experimental_distribute.auto_shard_policy
    if chosen != policies.AUTO:
        return dataset
    # AUTO would share out files, of which there may be fewer than workers.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policies.DATA
    return dataset.with_options(options)


def _on_host(data: Any) -> Any:
    """Returns arrays as tensors in host memory; by default a die's would be filled."""
    try:
        with tf.device("CPU:0"):
            return tf.nest.map_structure(tf.convert_to_tensor, data)
    except (TypeError, ValueError) as error:
        raise _error(
            "data must be a tf.data.Dataset or arrays",
            type(data).__name__,
            "A generator becomes a dataset by tf.data.Dataset.from_generator; fit "
            "distributes a dataset itself",
        ) from error


def _common_length(arrays: list[Any]) -> int:
    lengths = {int(array.shape[0]) if array.shape.rank else 0 for array in arrays}
    if len(lengths) != 1 or 0 in lengths:
        shapes = ", ".join(str(tuple(array.shape)) for array in arrays)
        raise _error(
            "arrays must have samples on their first axis, and equally many",
            f"shapes {shapes}",
            "Give them as one tuple, such as (x, y)",
        )
    return lengths.pop()


def _check(
    data: Any,
    is_dataset: bool,
    global_batch_size: Any,
    replicas: int,
    remainder: str,
    shuffle: bool,
) -> None:
    if remainder not in _REMAINDERS:
        raise _error(
            'remainder must be "merge" or "drop"', repr(remainder), "Leave it out"
        )
    if is_dataset and shuffle:
        raise _error(
            "shuffle is for arrays",
            "a dataset",
            "Call its own shuffle() before batch()",
        )
    if global_batch_size is None:
        if not is_dataset:
            raise _error("arrays need a global_batch_size", "None", "Say, 64")
    elif (
        isinstance(global_batch_size, bool)
        or not isinstance(global_batch_size, int)
        or global_batch_size < 1
        or global_batch_size % replicas
    ):
        raise _error(
            f"global_batch_size must be a positive multiple of {replicas}, the number "
            "of replicas",
            repr(global_batch_size),
            f"Say {replicas * 32}, for 32 samples on each",
        )


def _error(rule: str, received: Any, cure: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"batches_for_replicas: {rule}. Received: {received}. {cure}"
    )
