"""Five small models on scikit-learn's digits, compiled as a user would."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tensorflow import keras

from k80keras.training.models import build_model

BATCH_SIZE = 32
_SHAPE = (8, 8, 1)
_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model, and an epoch that takes about half a second on two CPU cores.

    Attributes:
      name: String.
      steps: Int. Training steps in an epoch.
      build: Function that returns the model, not compiled.
    """

    name: str
    steps: int
    build: Callable[[], Any]

    def compile(self, **options: Any) -> Any:
        """Returns a fresh model, the same one each time."""
        keras.utils.set_random_seed(1)
        model = self.build()
        model.compile(
            optimizer="adam",
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            **options,
        )
        return model


@functools.lru_cache(maxsize=None)
def _load_digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = digits.images.reshape(-1, *_SHAPE).astype(np.float32) * (255 / 16)
    return pixels, digits.target.astype(np.int64)


def make_dataset(steps: int) -> Any:
    """Returns an epoch of shuffled digits that are kept in memory."""
    pixels, labels = _load_digits()
    return (
        tf.data.Dataset.from_tensor_slices((pixels, labels))
        .shuffle(len(labels), seed=1)
        .repeat()
        .batch(BATCH_SIZE, drop_remainder=True)
        .take(steps)
        .prefetch(tf.data.AUTOTUNE)
    )


def _build_mlp() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(_SHAPE),
            layers.Rescaling(1 / 255),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(128, activation="relu"),
            layers.Dense(_CLASSES, activation="softmax"),
        ]
    )


def _build_cnn() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(_SHAPE),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(_CLASSES, activation="softmax"),
        ]
    )


def _build_lstm() -> Any:
    """Reads an image row by row."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(_SHAPE),
            layers.Rescaling(1 / 255),
            layers.Reshape(_SHAPE[:2]),
            layers.LSTM(64),
            layers.Dense(_CLASSES, activation="softmax"),
        ]
    )


def _build_transformer() -> Any:
    """Two blocks of attention over the 16 patches of 2 x 2 pixels."""
    layers = keras.layers
    inputs = keras.Input(_SHAPE)
    x = layers.Rescaling(1 / 255)(inputs)
    x = layers.Reshape((16, 32))(layers.Conv2D(32, 2, strides=2)(x))
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 16, dropout=0.1)(y, y)])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(32)(layers.Dense(64, activation="gelu")(y))
        x = layers.Add()([x, layers.Dropout(0.1)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(_CLASSES, activation="softmax")(x))


def _build_resnet20() -> Any:
    return build_model("resnet20", _SHAPE, _CLASSES)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("mlp", 1024, _build_mlp),
        Workload("cnn", 256, _build_cnn),
        Workload("lstm", 256, _build_lstm),
        Workload("transformer", 64, _build_transformer),
        Workload("resnet20", 32, _build_resnet20),
    )
}
