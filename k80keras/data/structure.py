"""What a `tf.data.Dataset` is made of; its private side is read here alone."""

from __future__ import annotations

from typing import Any

from tensorflow.python.data.experimental.ops import distribute


def batch_size_of(dataset: Any) -> int | None:
    """Returns the size of a dataset's whole batches; `None` if it isn't known."""
    size = int(distribute.compute_batch_size(dataset))
    return size if size > 0 else None
