"""ResNet-20 for small images."""

from __future__ import annotations

from typing import Any

from k80keras._keras import keras

_BLOCKS_PER_STAGE = 3


def build_resnet20(input_shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    """Builds the 20-layer network for CIFAR-10 of He et al. 2016, section 4.2.

    Three stages of 16, 32 and 64 filters; where the size is halved, the
    shortcut keeps every second pixel and pads the channels with zeros (their
    option A), so it has no weights.

    Args:
      input_shape: Tuple `(height, width, channels)`.
      num_classes: Int.

    Returns:
      A `keras.Model` from pixels in 0 ... 255 to probabilities.
    """
    inputs = keras.Input(input_shape)
    x = keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    x = keras.layers.ReLU()(_convolve(x, 16, 1))
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(_BLOCKS_PER_STAGE):
            x = _add_block(x, filters, 2 if stage > 0 and block == 0 else 1)
    x = keras.layers.GlobalAveragePooling2D()(x)
    outputs = keras.layers.Dense(num_classes, activation="softmax")(x)
    return keras.Model(inputs, outputs, name="resnet20")


def _add_block(x: Any, filters: int, stride: int) -> Any:
    """Adds two convolutions around which the input is led."""
    y = keras.layers.ReLU()(_convolve(x, filters, stride))
    y = _convolve(y, filters, 1)
    if stride > 1:
        x = keras.layers.AveragePooling2D(1, strides=stride)(x)
        x = _pad_channels(x, filters - x.shape[-1])
    return keras.layers.ReLU()(keras.layers.Add()([x, y]))


def _convolve(x: Any, filters: int, stride: int) -> Any:
    x = keras.layers.Conv2D(
        filters,
        3,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
    )(x)
    return keras.layers.BatchNormalization()(x)


def _pad_channels(x: Any, count: int) -> Any:
    """Adds `count` channels of zeros to `[N, H, W, C]`, half on either side."""
    # Keras' own layers pad rows and columns only; a Lambda can't be loaded
    # again without trusting its code.
    x = keras.layers.Permute((1, 3, 2))(x)
    x = keras.layers.ZeroPadding2D(((0, 0), (count // 2, count - count // 2)))(x)
    return keras.layers.Permute((1, 3, 2))(x)
