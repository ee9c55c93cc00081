"""The networks of `keras.applications`, for images of any shape they can take."""

from __future__ import annotations

from typing import Any

from k80keras._keras import keras
from k80keras.errors import InvalidArgumentError
from k80keras.training.names import fold


def application_names() -> dict[str, str]:
    """Returns the names of the networks, by their folded form."""
    members = dir(keras.applications)
    return {fold(name): name for name in members if name[0].isupper()}


def build_application(
    name: str, input_shape: tuple[int, int, int], num_classes: int
) -> keras.Model:
    """Builds a known network of `keras.applications`.

    Args:
      name: String. One of `application_names`, in any spelling of the same fold.
      input_shape: Tuple `(height, width, channels)`.
      num_classes: Int.

    Returns:
      A `keras.Model` from pixels in 0 ... 255 to probabilities.

    Raises:
      InvalidArgumentError: If it can't take images of that shape.
    """
    name = application_names()[fold(name)]
    network: Any = getattr(keras.applications, name)
    try:
        model = network(weights=None, input_shape=input_shape, classes=num_classes)
    except ValueError as error:
        shape = "x".join(str(size) for size in input_shape)
        first_line = str(error).strip().splitlines()[0]
        raise InvalidArgumentError(
            f"--model={name} must get images that it can take, and it can't take "
            f"{shape} ({first_line}). Enlarge them with --image_size, or use "
            "--model=resnet20, cnn or mlp"
        ) from error
    if _rescales(model):
        return model
    inputs = keras.Input(input_shape)
    rescaled = keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    return keras.Model(inputs, model(rescaled), name=model.name)


def _rescales(model: Any) -> bool:
    return any(isinstance(layer, keras.layers.Rescaling) for layer in model.layers)
