"""The smoke test's child process: answers one request at a time.

Any request may abort or hang it, which its parent (`smoke.py`) sees.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import statistics
import sys
import time
from multiprocessing.connection import Connection
from typing import Any, Sequence

from k80keras.machine.smoke.case import Case
from k80keras.machine.smoke.ops import OPERATIONS

_MIN_CALLS = 3
_MAX_CALLS = 20
_MAX_SECONDS = 0.5


def main() -> None:
    """Answers until the parent hangs up."""
    if sys.platform == "linux":
        # A hung child doesn't notice that its parent was killed. 1: when the
        # parent dies, this signal.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    # A core of a process that maps a GPU takes minutes and gigabytes to write.
    hard_limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard_limit))
    connection: Any = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    while True:
        try:
            operation, devices = json.loads(connection.recv_bytes())
        except EOFError:
            break
        try:
            answer = _answer(operation, devices)
        except Exception as error:
            answer = {"state": "failed", "message": _first_line(error)}
        connection.send_bytes(json.dumps(answer).encode())
    # TensorFlow may crash while Python takes it apart.
    os._exit(0)


def _answer(operation: str, devices: Sequence[str]) -> dict[str, Any]:
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


def _first_line(error: Exception) -> str:
    # TensorFlow adds the names of nodes and operations.
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*", "", str(error))
    lines = text.strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


if __name__ == "__main__":
    main()
