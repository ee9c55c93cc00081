"""Models by name: three small ones and all of `keras.applications`."""

from __future__ import annotations

from typing import Any, Callable

from k80keras._keras import keras
from k80keras.errors import InvalidArgumentError
from k80keras.training.applications import application_names, build_application
from k80keras.training.names import did_you_mean, fold
from k80keras.training.resnet import build_resnet20


def build_model(
    name: str, input_shape: tuple[int, int, int], num_classes: int
) -> keras.Model:
    """Builds a classifier of images with random initial weights.

    Args:
      name: String. `"mlp"`, `"cnn"`, `"resnet20"` or the name of a network in
        `keras.applications`, compared without case and `_`.
      input_shape: Tuple `(height, width, channels)`.
      num_classes: Int.

    Returns:
      A `keras.Model`, not compiled: `[N, height, width, channels]` pixels in
      0 ... 255 to `[N, num_classes]` probabilities.

    Raises:
      InvalidArgumentError: If the name is unknown, or if the network can't take
        images of that shape.

    >>> build_model("resnet20", (32, 32, 3), 10).count_params()
    271098
    """
    check_model_name(name)
    builder = _SMALL.get(fold(name))
    if builder is not None:
        return builder(input_shape, num_classes)
    return build_application(name, input_shape, num_classes)


def check_model_name(name: str) -> None:
    """Checks that `build_model` knows `name`.

    Raises:
      InvalidArgumentError: If it doesn't; says what may have been meant.
    """
    known = {**{n: n for n in _SMALL}, **application_names()}
    if fold(name) not in known:
        raise InvalidArgumentError(
            f"--model must be {', '.join(_SMALL)} or a keras.applications name. "
            f"Received: --model={name}.{did_you_mean(name, known.values())}"
        )


def _build_mlp(input_shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Rescaling(1 / 255),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dense(128, activation="relu"),
            layers.Dense(num_classes, activation="softmax"),
        ],
        name="mlp",
    )


def _build_cnn(input_shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(padding="same"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(padding="same"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(num_classes, activation="softmax"),
        ],
        name="cnn",
    )


_SMALL: dict[str, Callable[[tuple[int, int, int], int], Any]] = {
    "mlp": _build_mlp,
    "cnn": _build_cnn,
    "resnet20": build_resnet20,
}
