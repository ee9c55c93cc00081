"""Does each library under TensorFlow compute right, and as fast as it should?

A library that doesn't fit the card may abort or hang the process that calls it.
All of them run in a child process, and when one ends it a new one goes on.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import os
from typing import Any, Iterator, Mapping, Sequence

from k80keras.errors import InvalidArgumentError
from k80keras.machine.asked_process import AskedProcess
from k80keras.machine.smoke.ops import OPERATIONS
from k80keras.machine.smoke.result import SmokeReport, SmokeResult, judge

_CHILD = "k80keras.machine.smoke.child"
# A device that fails so often is not asked again: each time costs another start
# of TensorFlow, or the timeout.
_MAX_FAILURES = 4


def run_smoke(
    timeout_seconds: float = 120.0,
    operations: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> SmokeReport:
    """Runs one checked and timed operation per library on every visible device.

    Values are compared with float64 NumPy. Without a GPU the CPU is tested.
    TensorFlow isn't imported here, and nothing is left running.

    Args:
      timeout_seconds: Float. Time for each operation, for the import of
        TensorFlow, and for the start of its devices.
      operations: Sequence of names out of `OPERATIONS`. Defaults to all.
      environ: Mapping, the environment that TensorFlow gets. Defaults to
        `os.environ`.

    Returns:
      A `SmokeReport`.

    Raises:
      InvalidArgumentError: If an operation isn't known, or the timeout is no
        positive number.
    """
    chosen = list(OPERATIONS) if operations is None else list(operations)
    unknown = [name for name in chosen if name not in OPERATIONS]
    if unknown:
        raise InvalidArgumentError(
            f"The smoke test's operations are {', '.join(OPERATIONS)}. Received: "
            f"operations={chosen}. Leave out {', '.join(map(repr, unknown))}."
        )
    if not (math.isfinite(timeout_seconds) and timeout_seconds > 0):
        raise InvalidArgumentError(
            "timeout_seconds is a positive number. Received: "
            f"timeout_seconds={timeout_seconds}. Leave it out for 120 s."
        )
    run = _Run(timeout_seconds, os.environ if environ is None else environ)
    try:
        results = run.start()
        for devices, operation in _plan(list(run.devices), chosen):
            results.append(run.operate(devices, operation))
    finally:
        run.stop()
    return SmokeReport(tuple(run.devices), tuple(results), tuple(run.log))


class _Run:
    """One smoke test, over as many processes as it takes.

    Attributes:
      devices: Dict from the name of each device to its compute capability.
      log: List of strings, what the processes left that gave no answer.
    """

    def __init__(self, timeout_seconds: float, environ: Mapping[str, str]) -> None:
        self._timeout_seconds, self._environ = timeout_seconds, environ
        self._process = AskedProcess(_CHILD, environ)
        self._start_failure = ""
        self._failures: collections.Counter[str] = collections.Counter()
        self.devices: dict[str, tuple[int, ...]] = {}
        self.log: list[str] = []

    def start(self) -> list[SmokeResult]:
        """Imports TensorFlow and starts its devices."""
        results = []
        for operation in ("import", "devices"):
            blank = SmokeResult("host", operation, "TensorFlow")
            answer = self._ask(operation, [])
            results.append(judge(blank, answer))
            if answer["state"] != "ok":
                self._start_failure = results[-1].message
                break
            # After a crash a die may be lost; it stays in the plan.
            self.devices = self.devices or {
                name: tuple(capability or ())
                for name, capability in answer.get("capabilities", {}).items()
            }
        return results

    def operate(self, devices: Sequence[str], operation: str) -> SmokeResult:
        """Returns the result of one operation."""
        on_gpu = devices[0].startswith("GPU")
        library = OPERATIONS[operation].library if on_gpu else "TensorFlow"
        blank = SmokeResult(",".join(devices), operation, library)
        why_not = self._why_not(devices, operation)
        if why_not:
            return dataclasses.replace(blank, message=f"{blank.subject} {why_not}")
        answer = self._ask(operation, devices)
        if answer["state"] in ("failed", "aborted", "hung"):
            self._failures.update(devices)
            # An error of a GPU sticks to the process that met it.
            self._process.stop()
        return judge(blank, answer, self.devices[devices[0]])

    def stop(self) -> None:
        """Ends the process."""
        self._process.stop()

    def _ask(self, operation: str, devices: Sequence[str]) -> dict[str, Any]:
        answer = self._process.ask([operation, devices], self._timeout_seconds)
        self.log += self._process.log
        return answer

    def _why_not(self, devices: Sequence[str], operation: str) -> str:
        """Returns why an operation can't be run, after trying to make it so."""
        if len(devices) < OPERATIONS[operation].device_count:
            return "needs a second device"
        for device in devices:
            if self._failures[device] >= _MAX_FAILURES:
                return f"was not run: {device} failed {_MAX_FAILURES} times before"
        if self._process.ended and not self._start_failure:
            self._process = AskedProcess(_CHILD, self._environ)
            self.start()
        if self._start_failure:
            return f"was not run: {self._start_failure}"
        return ""


def _plan(
    devices: Sequence[str], operations: Sequence[str]
) -> Iterator[tuple[list[str], str]]:
    """Yields what runs where: on each device alone, then on two together."""
    single = [name for name in operations if OPERATIONS[name].device_count == 1]
    for device in devices:
        yield from (([device], name) for name in single)
    for name in operations:
        if name not in single:
            yield from ((pair, name) for pair in _pairs(devices))


def _pairs(devices: Sequence[str]) -> list[list[str]]:
    """Returns neighbours, which among K80s are the dies of one board.

    >>> _pairs(["GPU:0", "GPU:1", "GPU:2"])
    [['GPU:0', 'GPU:1'], ['GPU:1', 'GPU:2']]
    """
    if list(devices) == ["CPU:0"]:
        return [["CPU:0", "CPU:1"]]
    last = max(0, len(devices) - 2)
    starts = [min(start, last) for start in range(0, len(devices), 2)]
    return [list(devices[start : start + 2]) for start in starts]
