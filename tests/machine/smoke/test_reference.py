"""The references are right, and the comparison sees what isn't."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from k80keras.machine.smoke import reference


def test_convolution_by_hand() -> None:
    image = np.arange(1.0, 10.0).reshape(1, 3, 3, 1)
    filters = np.zeros([3, 3, 1, 1])
    filters[0, 1], filters[1, 1] = 10.0, 1.0  # 10 * the pixel above + the pixel
    expected = [[1, 2, 3], [14, 25, 36], [47, 58, 69]]
    assert reference.convolve(image, filters)[0, :, :, 0].tolist() == expected


def test_gradients_by_hand() -> None:
    image = np.arange(1.0, 10.0).reshape(1, 3, 3, 1)
    filters = np.arange(1.0, 10.0).reshape(3, 3, 1, 1)
    gradient = np.zeros([1, 3, 3, 1])
    gradient[0, 0, 0] = 1.0  # only the result in the corner counts
    by_image = reference.gradient_of_images(gradient, filters)[0, :, :, 0]
    assert by_image.tolist() == [[5, 6, 0], [8, 9, 0], [0, 0, 0]]
    by_filters = reference.gradient_of_filters(image, gradient, 3)[:, :, 0, 0]
    assert by_filters.tolist() == [[0, 0, 0], [0, 1, 2], [0, 4, 5]]


def test_convolution_agrees_with_tensorflow() -> None:
    generator = np.random.default_rng(0)
    images = tf.constant(generator.normal(size=[2, 5, 4, 3]))
    filters = tf.constant(generator.normal(size=[3, 3, 3, 2]))
    weights = tf.constant(generator.normal(size=[2, 5, 4, 2]))
    with tf.GradientTape() as tape:
        tape.watch([images, filters])
        result = tf.nn.conv2d(images, filters, 1, "SAME")
        loss = tf.reduce_sum(result * weights)
    theirs = [result, *tape.gradient(loss, [images, filters])]
    x, w, dy = images.numpy(), filters.numpy(), weights.numpy()
    ours = [
        reference.convolve(x, w),
        reference.gradient_of_images(dy, w),
        reference.gradient_of_filters(x, dy, 3),
    ]
    for our, their in zip(ours, theirs):
        np.testing.assert_allclose(our, their.numpy(), rtol=1e-12, atol=1e-12)


def test_tells_float32_from_less() -> None:
    generator = np.random.default_rng(0)
    left, right = generator.uniform(-1, 1, [2, 200, 200])
    expected = left @ right
    single = (left.astype("f") @ right.astype("f")).astype("f")
    assert reference.difference("it", single, expected, 200) == ""
    half = left.astype("e").astype("d") @ right.astype("e").astype("d")
    assert "it: off by up to" in reference.difference("it", half, expected, 200)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e-3, -1e30])
def test_one_wrong_value_is_enough(wrong: float) -> None:
    expected = np.ones([20, 20])
    actual = expected.astype("f")
    assert reference.difference("it", actual, expected, 20) == ""
    actual[3, 4] += wrong
    assert reference.difference("it", actual, expected, 20).startswith("it: ")


def test_shapes_must_agree() -> None:
    wrong = reference.difference("it", np.ones([1, 2]), np.ones([2]), 9)
    assert wrong == "it: shape (1, 2) instead of (2,)"


def test_normal_numbers() -> None:
    numbers = np.random.default_rng(0).normal(size=100_000)
    assert reference.normal_difference(numbers) == ""
    for wrong in (numbers + 0.1, numbers * 1.1, 0 * numbers, numbers * np.inf):
        assert reference.normal_difference(wrong)
