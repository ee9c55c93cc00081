"""What a `tf.data.Dataset` is made of; its private side is read here alone."""

from __future__ import annotations

from typing import Any

from tensorflow.python.data.experimental.ops import distribute

from k80keras._keras import tf

# Give out an element for each that they take in.
_KEEP_THE_COUNT = {"Prefetch", "Map", "ParallelMap", "Shuffle", "Options", "Cache"}


def batch_size_of(dataset: Any) -> int | None:
    """Returns the size of a dataset's whole batches; `None` if it isn't known."""
    size = int(distribute.compute_batch_size(dataset))
    return size if size > 0 else None


def batches_in_one_pass(data: Any) -> float | None:
    """Returns how many elements a dataset has before it repeats itself.

    Returns:
      Float: not whole where a batch holds the end of one pass and the start of
      the next. `None` if it isn't known.
    """
    if not isinstance(data, tf.data.Dataset):
        return None
    count = int(data.cardinality())
    if count >= 0:
        return float(count)
    source = getattr(data, "_input_dataset", None)
    kind = type(data).__name__.strip("_")
    kind = kind[: -len("Dataset")] if kind.endswith("Dataset") else kind
    if kind == "Repeat" or kind in _KEEP_THE_COUNT:
        return batches_in_one_pass(source)
    if kind in ("Batch", "ParallelBatch"):
        samples = batches_in_one_pass(source)
        return samples and samples / int(data._batch_size)
    return None
