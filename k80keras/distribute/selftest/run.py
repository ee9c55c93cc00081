"""Tries the ways to add up gradients until one works, each in its own process."""

from __future__ import annotations

import time
from typing import Any, Mapping, Sequence

from k80keras.machine.asked_process import AskedProcess
from k80keras.machine.self_test import Trial

_CHILD = "k80keras.distribute.selftest.child"


def run_trials(
    devices: Sequence[str],
    visible: Sequence[int],
    ways: Sequence[str],
    timeout_seconds: float,
    environ: Mapping[str, str],
) -> tuple[Trial, ...]:
    """Returns what was tried, in order; the last one is `"ok"` or none is.

    Each process copies between the devices, adds up known values, and trains.
    When copies fail no other way is tried: all of them need copies.

    Args:
      devices: TensorFlow's names.
      visible: As `Choice.visible`.
      ways: Names out of `CROSS_DEVICE_OPS`.
      timeout_seconds: Float. Time for everything. Each way may use its share of
        what is left.
      environ: Mapping, the environment of the processes.
    """
    deadline = time.monotonic() + timeout_seconds
    trials: list[Trial] = []
    for number, way in enumerate(ways):
        share = (deadline - time.monotonic()) / (len(ways) - number)
        process = AskedProcess(_CHILD, environ)
        try:
            stage, answer = _try(process, devices, visible, way, share)
        finally:
            process.stop()
        trials.append(Trial(way, answer["state"], answer.get("message", "")))
        if answer["state"] == "ok" or stage in ("start", "copy"):
            break
    return tuple(trials)


def _try(
    process: AskedProcess,
    devices: Sequence[str],
    visible: Sequence[int],
    way: str,
    seconds: float,
) -> tuple[str, dict[str, Any]]:
    deadline = time.monotonic() + seconds
    requests: tuple[tuple[Any, ...], ...] = (
        ("start", devices, visible),
        ("copy", devices),
        ("all_reduce", devices, way),
        ("fit", devices, way),
    )
    answer: dict[str, Any] = {}
    for request in requests:
        answer = process.ask(request, max(0.1, deadline - time.monotonic()))
        if answer["state"] != "ok":
            told = answer.get("message", "")
            if answer["state"] in ("hung", "aborted"):
                told = f"{request[0].replace('_', '-')} {told}"
            return request[0], {**answer, "message": told}
    return "", answer
