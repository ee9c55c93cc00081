"""Where images come from: the one form that every kind of dataset is brought to."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from k80keras._keras import tf

DEFAULT_IMAGE_SIZE = 224


@dataclasses.dataclass(frozen=True)
class Source:
    """Labelled images, still encoded, in an order that never changes.

    Attributes:
      train: `tf.data.Dataset` of pairs: what `decode` takes, int64 label.
      validation: The same, of images that are not in `train`.
      train_examples: Int. Pairs in `train`.
      validation_examples: Int. Pairs in `validation`.
      decode: Callable from such a pair to uint8 pixels, `[height, width,
        channels]`, and the label.
      image_shape: Tuple `(height, width, channels)` of what `decode` returns.
      num_classes: Int. Labels are below it.
      find_damage: Callable that says in one sentence which files can't be read,
        or returns `None`.
    """

    train: Any
    validation: Any
    train_examples: int
    validation_examples: int
    decode: Callable[[Any, Any], tuple[Any, Any]]
    image_shape: tuple[int, int, int]
    num_classes: int
    find_damage: Callable[[], str | None] = lambda: None


def resize(image: Any, shape: tuple[int, int, int]) -> Any:
    """Returns a uint8 image of exactly `shape`, resized only if it has to be."""
    if tuple(image.shape) == shape:
        return image
    resized = tf.image.resize(image, shape[:2], antialias=True)
    pixels = tf.saturate_cast(tf.round(resized), tf.uint8)
    return tf.ensure_shape(pixels, shape)
