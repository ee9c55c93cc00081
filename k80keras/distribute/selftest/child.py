"""The self-test's child process: moves, adds up and trains, and checks each."""

from __future__ import annotations

import functools
from itertools import permutations
from typing import Any, Callable, Sequence

import numpy as np

from k80keras._keras import keras, tf
from k80keras.distribute.devices import start_devices
from k80keras.distribute.strategies import make_strategy
from k80keras.machine.asked_process import answer_requests

# Elements of 4 bytes: below a page, odd, and more than one chunk of any transfer.
_SIZES = (1, 1021, 2**18 + 3, 2**22)
_ROUNDS = 3
# Of float32, after two steps of a small model whose gradients were added up in
# another order.
_TOLERANCE = 1e-4


def _answer(request: Any) -> dict[str, Any]:
    what, *arguments = request
    wrong = _CHECKS[what](*arguments)
    return {"state": "wrong", "message": wrong} if wrong else {"state": "ok"}


def _start(devices: Sequence[str], visible: Sequence[int]) -> str:
    start_devices(devices, visible)
    tf.config.list_logical_devices()
    return ""


@functools.cache
def _strategy(devices: tuple[str, ...], cross_device_ops: str) -> Any:
    # Two that use collectives cannot live in one process.
    return make_strategy(devices, cross_device_ops)


def _copy(devices: Sequence[str]) -> str:
    """Writes on each device, copies to each other one, and compares."""
    random = np.random.default_rng(80)
    for size in _SIZES:
        for source, target in permutations(devices, 2):
            pattern = random.integers(0, 2**31, size, np.int64)
            with tf.device(source):
                here = tf.identity(tf.constant(pattern))
            with tf.device(target):
                there = tf.identity(here)
            differ = int(np.sum(there.numpy() != pattern))
            if differ:
                return (
                    f"a copy from {source} to {target} arrived damaged "
                    f"({differ} of {size} values)"
                )
    return ""


def _all_reduce(devices: Sequence[str], cross_device_ops: str) -> str:
    """Adds up whole numbers, whose sums are exact in any order."""
    strategy = _strategy(tuple(devices), cross_device_ops)
    count = strategy.num_replicas_in_sync
    patterns = [np.arange(size) % 1009 for size in _SIZES]

    @tf.function
    def reduced() -> Any:
        def of_one_replica() -> Any:
            context = tf.distribute.get_replica_context()
            place = tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
            values = [place * tf.constant(p, tf.float32) for p in patterns]
            return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

        return strategy.run(of_one_replica)

    for _ in range(_ROUNDS):
        for pattern, sums in zip(patterns, reduced()):
            right = pattern * (count * (count + 1) // 2)
            for place, found in enumerate(strategy.experimental_local_results(sums)):
                differ = int(np.sum(found.numpy() != right))
                if differ:
                    return (
                        f"a sum over {count} replicas is wrong on {devices[place]} "
                        f"({differ} of {pattern.size} values)"
                    )
    return ""


def _fit(devices: Sequence[str], cross_device_ops: str) -> str:
    """Trains two steps on all devices, and on one, and compares the weights."""
    random = np.random.default_rng(37)
    x = random.normal(size=(16 * len(devices), 8, 8, 3)).astype("float32")
    y = random.integers(0, 4, len(x))
    several = _trained(x, y, _strategy(tuple(devices), cross_device_ops))
    alone = _trained(x, y, tf.distribute.OneDeviceStrategy(devices[0]))
    for ours, theirs in zip(several, alone):
        error = float(np.max(np.abs(ours - theirs)))
        if not error <= _TOLERANCE:
            return (
                f"two steps of training on {len(devices)} devices and on one differ "
                f"by {error:.2g}"
            )
    return ""


def _trained(x: Any, y: Any, strategy: Any) -> list[Any]:
    keras.utils.set_random_seed(7)
    with strategy.scope():
        layers = [
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(4, activation="softmax"),
        ]
        model = keras.Sequential([keras.Input(x.shape[1:]), *layers])
        optimizer = keras.optimizers.SGD(0.1)
        loss = "sparse_categorical_crossentropy"
        model.compile(optimizer, loss, jit_compile=False)
    model.fit(x, y, batch_size=len(x) // 2, shuffle=False, verbose=0)
    return list(model.get_weights())


_CHECKS: dict[str, Callable[..., str]] = {
    "start": _start,
    "copy": _copy,
    "all_reduce": _all_reduce,
    "fit": _fit,
}

if __name__ == "__main__":
    answer_requests(_answer)
