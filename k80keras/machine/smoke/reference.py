"""What the smoke test's operations should give, in plain float64 NumPy."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

# Of many roundings the largest is a few times the usual one, and convolutions
# by transform (Winograd, FFT) round in more places than the plain sum.
_SAFETY = 8.0
_EPSILON = float(np.finfo(np.float32).eps)


def allowed_error(terms: int) -> float:
    """Returns the largest error that float32 explains.

    A sum of `terms` products of numbers up to one is about `sqrt(terms)` large,
    and so is each of its partial sums, which are rounded one by one; such
    errors add up like steps of a random walk, to `sqrt(terms)` of them.

    Args:
      terms: Int. Length of the sums; 0 where nothing is rounded.
    """
    return _SAFETY * _EPSILON * terms


def difference(name: str, actual: Any, expected: Any, terms: int) -> str:
    """Returns `""` if both agree within rounding, else how they differ.

    Args:
      name: String, what is compared.
      actual: Array.
      expected: Array of float64 or complex128.
      terms: Int. See `allowed_error`.

    >>> difference("the sum", np.float32([1, 2]), np.float64([1, 2]), terms=0)
    ''
    >>> difference("the sum", np.float32([1, 2]), np.float64([1, 3]), terms=0)
    'the sum: off by up to 1, where rounding explains 0'
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape:
        return f"{name}: shape {actual.shape} instead of {expected.shape}"
    if not np.all(np.isfinite(actual)):
        return f"{name}: not finite"
    error, allowed = float(np.max(np.abs(actual - expected))), allowed_error(terms)
    if error <= allowed:
        return ""
    return f"{name}: off by up to {error:.3g}, where rounding explains {allowed:.2g}"


def first_of(differences: Sequence[str]) -> str:
    """Returns the first that is not `""`, or `""`."""
    return next((text for text in differences if text), "")


def convolve(images: Any, filters: Any) -> Any:
    """Convolves with stride 1 and zero padding that keeps the size.

    Args:
      images: Array `[N, H, W, C]`.
      filters: Array `[K, K, C, F]`, K odd.

    Returns:
      Float64 array `[N, H, W, F]`.
    """
    size, (_, height, width, _) = len(filters), images.shape
    padded, filters = _pad(images, size), filters.astype(np.float64)
    return sum(
        padded[:, i : i + height, j : j + width] @ filters[i, j]
        for i in range(size)
        for j in range(size)
    )


def gradient_of_images(gradient: Any, filters: Any) -> Any:
    """Returns what `convolve` passes back to its images.

    Args:
      gradient: Array `[N, H, W, F]`, that of the result.
      filters: Array `[K, K, C, F]`.
    """
    # Each image pixel gathers from the outputs that it reached: the mirrored way.
    return convolve(gradient, filters[::-1, ::-1].transpose(0, 1, 3, 2))


def gradient_of_filters(images: Any, gradient: Any, size: int) -> Any:
    """Returns what `convolve` passes back to its filters.

    Args:
      images: Array `[N, H, W, C]`.
      gradient: Array `[N, H, W, F]`, that of the result.
      size: Int, K.
    """
    _, height, width, channels = images.shape
    padded = _pad(images, size)
    flat = gradient.astype(np.float64).reshape(-1, gradient.shape[-1])
    return np.stack(
        [
            padded[:, i : i + height, j : j + width].reshape(-1, channels).T @ flat
            for i in range(size)
            for j in range(size)
        ]
    ).reshape(size, size, channels, -1)


def normal_difference(actual: Any) -> str:
    """Returns `""` if the values may come from a standard normal distribution.

    Mean and variance lie within six of their own standard deviations.
    """
    actual = actual.astype(np.float64)
    if not np.all(np.isfinite(actual)):
        return "the random numbers are not finite"
    mean, variance = float(actual.mean()), float(actual.var())
    if abs(mean) > 6.0 / actual.size**0.5:
        return f"the random numbers have mean {mean:.3g} instead of 0"
    if abs(variance - 1.0) > 6.0 * (2.0 / actual.size) ** 0.5:
        return f"the random numbers have variance {variance:.3g} instead of 1"
    return ""


def _pad(images: Any, size: int) -> Any:
    edge = (size // 2, size // 2)
    return np.pad(images.astype(np.float64), ((0, 0), edge, edge, (0, 0)))
