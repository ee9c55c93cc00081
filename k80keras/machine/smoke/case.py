"""An operation of the smoke test, ready to run."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation on certain devices, ready to run.

    Attributes:
      run: Function without arguments, returns a sequence of tensors or arrays.
      check: Function of that sequence as arrays: `""` if they are right, else
        what is wrong.
      flops: Float. Floating-point operations of one call.
      moved_bytes: Float. What one call must at least read and write of the
        device's memory, or send.
    """

    run: Callable[[], Sequence[Any]]
    check: Callable[[Sequence[Any]], str]
    flops: float = 0.0
    moved_bytes: float = 0.0


def on_device(
    devices: Sequence[str],
    run: Callable[..., Sequence[Any]],
    inputs: Sequence[Any],
    check: Callable[[Sequence[Any]], str],
    flops: float = 0.0,
    moved_bytes: float = 0.0,
) -> Case:
    """Returns the case that runs on the first device.

    Args:
      devices: Sequence of strings.
      run: Function of TensorFlow and the inputs as tensors.
      inputs: Sequence of arrays; they are put on the device once.
      check: See `Case`, as are the others.
    """
    from k80keras._keras import tf

    with tf.device(devices[0]):
        tensors = [tf.constant(array) for array in inputs]

    def run_there() -> Sequence[Any]:
        with tf.device(devices[0]):
            return run(tf, *tensors)

    return Case(run_there, check, flops, moved_bytes)


def uniform(seed: int, *shape: int) -> Any:
    """Returns float32 numbers between -1 and 1, the same in every process."""
    generator = np.random.default_rng(seed)
    return generator.uniform(-1.0, 1.0, shape).astype(np.float32)
