"""The smoke test's child process: runs one operation at a time."""

from __future__ import annotations

import statistics
import time
from typing import Any

from k80keras.machine.asked_process import answer_requests
from k80keras.machine.smoke.case import Case
from k80keras.machine.smoke.ops import OPERATIONS

_MIN_CALLS = 3
_MAX_CALLS = 20
_MAX_SECONDS = 0.5


def _answer(request: Any) -> dict[str, Any]:
    operation, devices = request
    started = time.perf_counter()
    if operation == "import":
        from k80keras._keras import versions

        found = versions()
        text = f"TensorFlow {found['tensorflow']}, Keras {found['keras']}"
        return {"state": "ok", "seconds": _since(started), "message": text}
    if operation == "devices":
        return {"state": "ok", **_devices(), "seconds": _since(started)}
    case = OPERATIONS[operation].make(devices, devices[0].startswith("GPU"))
    return _measure(case)


def _devices() -> dict[str, Any]:
    """Starts the visible GPUs, else the CPU as two devices."""
    from k80keras._keras import tf

    # Otherwise newer GPUs multiply with ten bits, which would be no error.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    gpus = list(tf.config.list_physical_devices("GPU"))
    if not gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    tf.config.list_logical_devices()
    details = {
        f"GPU:{index}": tf.config.experimental.get_device_details(gpu)
        for index, gpu in enumerate(gpus)
    } or {"CPU:0": {}}
    return {
        "capabilities": {k: v.get("compute_capability") for k, v in details.items()},
        "message": ", ".join(
            " ".join(filter(None, (name, detail.get("device_name"))))
            for name, detail in details.items()
        ),
    }


def _measure(case: Case) -> dict[str, Any]:
    """Checks the first call, which also warms up, and times the others."""
    wrong = case.check([_array(value) for value in case.run()])
    if wrong:
        return {"state": "wrong", "message": wrong}
    times: list[float] = []
    while len(times) < _MIN_CALLS or (
        len(times) < _MAX_CALLS and sum(times) < _MAX_SECONDS
    ):
        times.append(_time(case))
    return {
        "state": "ok",
        "seconds": statistics.median(times),
        "flops": case.flops,
        "moved_bytes": case.moved_bytes,
    }


def _time(case: Case) -> float:
    from k80keras._keras import tf

    tf.test.experimental.sync_devices()
    started = time.perf_counter()
    case.run()
    tf.test.experimental.sync_devices()
    return _since(started)


def _array(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value


def _since(started: float) -> float:
    return time.perf_counter() - started


if __name__ == "__main__":
    answer_requests(_answer)
