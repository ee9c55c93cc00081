"""The smoke test's operations: one for each library under TensorFlow.

TensorFlow is imported when an operation is made, in the child process.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from k80keras.machine import hardware
from k80keras.machine.smoke import reference
from k80keras.machine.smoke.case import Case, on_device, uniform


@dataclasses.dataclass(frozen=True)
class Operation:
    """What the smoke test runs for one library.

    Attributes:
      library: String, what computes it on a GPU.
      make: Function of the devices and whether they are GPUs. Sizes are those
        of the published measurements there, and smaller on a CPU.
      rate_unit: String, what its speed is told in: `"FLOP/s"` or `"B/s"`;
        `None` if by time alone.
      published: `Measured`, what one die of a K80 was found to reach.
      device_count: Int. How many devices it takes.
    """

    library: str
    make: Callable[[Sequence[str], bool], Case]
    rate_unit: str | None = None
    published: hardware.Measured | None = None
    device_count: int = 1


def _add(devices: Sequence[str], gpu: bool) -> Case:
    size = 2**24 if gpu else 2**18
    left, right = uniform(1, size), uniform(2, size)
    # One rounding, which IEEE prescribes: the same bits everywhere.
    expected = left + right
    return on_device(
        devices,
        lambda tf, x, y: [tf.add(x, y)],
        (left, right),
        lambda got: reference.difference("the sum", got[0], expected, terms=0),
        flops=size,
        moved_bytes=12.0 * size,
    )


def _matmul(devices: Sequence[str], gpu: bool) -> Case:
    size = 1536 if gpu else 256
    left, right = uniform(1, size, size), uniform(2, size, size)
    expected = left.astype(np.float64) @ right.astype(np.float64)
    return on_device(
        devices,
        lambda tf, x, y: [tf.linalg.matmul(x, y)],
        (left, right),
        lambda got: reference.difference("the product", got[0], expected, size),
        flops=2.0 * size**3,
        moved_bytes=12.0 * size**2,
    )


def _convolution(devices: Sequence[str], gpu: bool) -> Case:
    """A 3x3 layer of ResNet-50's first stage, forward and both gradients."""
    batch, size, channels = (16, 56, 64) if gpu else (2, 14, 16)
    images = uniform(1, batch, size, size, channels)
    filters = uniform(2, 3, 3, channels, channels)
    gradient = uniform(3, batch, size, size, channels)
    layer = {"strides": [1, 1, 1, 1], "padding": "SAME"}

    def run(tf: Any, x: Any, w: Any, dy: Any) -> list[Any]:
        ops = tf.raw_ops
        dx = ops.Conv2DBackpropInput(
            input_sizes=images.shape, filter=w, out_backprop=dy, **layer
        )
        dw = ops.Conv2DBackpropFilter(
            input=x, filter_sizes=filters.shape, out_backprop=dy, **layer
        )
        return [ops.Conv2D(input=x, filter=w, **layer), dx, dw]

    def check(got: Sequence[Any]) -> str:
        y = reference.convolve(images, filters)
        dx = reference.gradient_of_images(gradient, filters)
        dw = reference.gradient_of_filters(images, gradient, 3)
        terms, pixels = 9 * channels, batch * size * size
        return reference.first_of(
            [
                reference.difference("the result", got[0], y, terms),
                reference.difference("the images' gradient", got[1], dx, terms),
                reference.difference("the filters' gradient", got[2], dw, pixels),
            ]
        )

    return on_device(
        devices,
        run,
        (images, filters, gradient),
        check,
        flops=3 * 2.0 * 9 * channels**2 * batch * size**2,
        moved_bytes=4.0 * 3 * (images.size + gradient.size + filters.size),
    )


def _fft(devices: Sequence[str], gpu: bool) -> Case:
    count, size = (4096, 1024) if gpu else (64, 1024)
    signal = np.empty([count, size], np.complex64)
    signal.real, signal.imag = uniform(1, count, size), uniform(2, count, size)
    expected = np.fft.fft(signal.astype(np.complex128))
    return on_device(
        devices,
        lambda tf, x: [tf.signal.fft(x)],
        (signal,),
        lambda got: reference.difference("the transform", got[0], expected, size),
        flops=5.0 * count * size * np.log2(size),
        moved_bytes=16.0 * count * size,
    )


def _solve(devices: Sequence[str], gpu: bool) -> Case:
    size = 1024 if gpu else 128
    # Close to the identity, so that it magnifies no rounding: the random part
    # has norm 0.5 or so.
    matrix = np.eye(size, dtype=np.float32) + 0.4 * uniform(1, size, size) / size**0.5
    right = uniform(2, size, 8)
    expected = np.linalg.solve(matrix.astype(np.float64), right.astype(np.float64))
    return on_device(
        devices,
        lambda tf, a, b: [tf.linalg.solve(a, b)],
        (matrix, right),
        lambda got: reference.difference("the solution", got[0], expected, size),
        flops=2.0 / 3.0 * size**3 + 2.0 * size**2 * 8,
        moved_bytes=4.0 * size * (size + 16),
    )


def _svd(devices: Sequence[str], gpu: bool) -> Case:
    rows, columns = 96, 64
    matrix = uniform(1, rows, columns)
    expected = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)

    def check(got: Sequence[Any]) -> str:
        s, u, v = (part.astype(np.float64) for part in got)
        again, one = (u * s) @ v.T, np.eye(columns)
        return reference.first_of(
            [
                reference.difference("the singular values", s, expected, rows),
                reference.difference("the product of its parts", again, matrix, rows),
                reference.difference("U'U", u.T @ u, one, rows),
                reference.difference("V'V", v.T @ v, one, rows),
            ]
        )

    return on_device(
        devices,
        lambda tf, a: tf.linalg.svd(a),
        (matrix,),
        check,
        # Golub and Reinsch's method, with both sets of vectors.
        flops=14.0 * rows * columns**2 + 8.0 * columns**3,
        moved_bytes=4.0 * (2 * rows * columns + columns**2 + columns),
    )


def _random(devices: Sequence[str], gpu: bool) -> Case:
    size = 2**24 if gpu else 2**18

    def run(tf: Any) -> list[Any]:
        return [tf.random.stateless_normal([size], seed=[1, 2]) for _ in range(2)]

    def check(got: Sequence[Any]) -> str:
        if not np.array_equal(got[0], got[1]):
            return "the same seed gives other random numbers the second time"
        return reference.normal_difference(got[0])

    return on_device(devices, run, (), check, moved_bytes=2 * 4.0 * size)


def _fit(devices: Sequence[str], gpu: bool) -> Case:
    from k80keras._keras import keras, tf

    keras.utils.set_random_seed(1)
    inputs = uniform(1, 64, 8, 8, 1)
    targets = inputs.mean(axis=(1, 2)) * 8.0
    with tf.distribute.OneDeviceStrategy(devices[0]).scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(4, 3, activation="tanh"),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse")

    def run() -> list[Any]:
        history = model.fit(inputs, targets, batch_size=16, epochs=5, verbose=0)
        return [np.asarray(history.history["loss"]), *model.get_weights()]

    def check(got: Sequence[Any]) -> str:
        first, last = got[0][0], got[0][-1]
        if not all(np.all(np.isfinite(values)) for values in got):
            return "the loss or the weights are not finite"
        if not last < 0.5 * first:
            return f"the loss went from {first:.3g} to {last:.3g} in 5 epochs"
        return ""

    return Case(run, check)


def _all_reduce(devices: Sequence[str], gpu: bool) -> Case:
    from k80keras._keras import tf

    # 64 MiB on GPUs, of the order of a model's gradients. Small whole numbers:
    # their sums are exact.
    size = 2**24 if gpu else 2**16
    pattern = (np.arange(size) % 1000).astype(np.float32)
    strategy = tf.distribute.MirroredStrategy(list(devices))

    def value_of(context: Any) -> Any:
        replica = context.replica_id_in_sync_group
        # Else all of them are made on the first device, and sent each time.
        with tf.device(devices[replica]):
            return tf.constant(pattern * (replica + 1))

    values = strategy.experimental_distribute_values_from_function(value_of)

    def reduce_one(value: Any) -> Any:
        return tf.distribute.get_replica_context().all_reduce("sum", value)

    @tf.function(autograph=False)
    def reduce_all() -> Any:
        reduced = strategy.run(reduce_one, args=(values,))
        return strategy.experimental_local_results(reduced)

    def check(got: Sequence[Any]) -> str:
        if len(got) != len(devices):
            return f"{len(got)} devices have a sum instead of {len(devices)}"
        return reference.first_of(
            [
                reference.difference(f"the sum on {device}", value, 3 * pattern, 0)
                for device, value in zip(devices, got)
            ]
        )

    return Case(reduce_all, check, flops=size, moved_bytes=4.0 * size)


OPERATIONS: Mapping[str, Operation] = {
    "add": Operation("TensorFlow", _add, "B/s", hardware.GK210_MEMORY_ECC),
    "matmul": Operation("cuBLAS", _matmul, "FLOP/s", hardware.GK210_MATMUL),
    "convolution": Operation(
        "cuDNN", _convolution, "FLOP/s", hardware.GK210_CONVOLUTION
    ),
    "fft": Operation("cuFFT", _fft, "FLOP/s"),
    "solve": Operation("cuSolver", _solve, "FLOP/s"),
    "svd": Operation("cuSolver", _svd, "FLOP/s"),
    # TensorFlow brings its own generator and does not use cuRAND.
    "random": Operation("TensorFlow", _random, "B/s"),
    "fit": Operation("Keras", _fit),
    "all_reduce": Operation("NCCL", _all_reduce, "B/s", device_count=2),
}
