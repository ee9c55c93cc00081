"""The self-test against faults injected into TensorFlow's own reductions."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from k80keras.distribute.selftest.run import run_trials
from k80keras.distribute.strategies import CROSS_DEVICE_OPS

FAULTS = Path(__file__).with_name("faults")
WAYS = list(CROSS_DEVICE_OPS)
# Far more than it takes: only what hangs may ever be ended by it.
SECONDS = 60.0


def environ_with(faults: str, mark: str = "") -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(FAULTS),
        "K80KERAS_TEST_FAULTS": faults,
        "K80KERAS_TEST_MARK": mark,
    }


def run(faults: str, seconds: float = SECONDS):
    """Returns states by way, and the messages; nothing is left running."""
    mark = uuid.uuid4().hex
    devices = ("CPU:0", "CPU:1")
    trials = run_trials(devices, (), WAYS, seconds, environ_with(faults, mark))
    assert processes_with(mark) == []
    states = {trial.cross_device_ops: trial.state for trial in trials}
    return states, [trial.message for trial in trials]


def processes_with(mark: str) -> list[str]:
    """Returns the processes whose environment holds `mark`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_healthy_devices_use_the_first_way():
    assert run("") == ({"collective": "ok"}, [""])


@pytest.mark.slow
def test_wrong_sums():
    states, messages = run("collective=wrong")

    assert states == {"collective": "wrong", "hierarchical_copy": "ok"}
    assert messages[0].startswith("a sum over 2 replicas is wrong on CPU:0")


@pytest.mark.slow
def test_a_hang_and_a_crash():
    # The hang gets a third of the time, the crash none at all.
    states, messages = run("collective=hang,hierarchical_copy=crash", 45.0)

    assert states == {
        "collective": "hung",
        "hierarchical_copy": "aborted",
        "reduction_to_one_device": "ok",
    }
    assert messages[0].startswith("all-reduce hung for ")
    assert messages[1].startswith("all-reduce aborted the process (signal 6)")


@pytest.mark.slow
def test_nothing_works():
    states, messages = run(
        "collective=crash,hierarchical_copy=wrong,reduction_to_one_device=raise"
    )

    assert list(states.values()) == ["aborted", "wrong", "failed"]
    assert messages[2] == "RuntimeError: injected"


def test_damaged_copies_leave_no_way():
    states, messages = run("copy=wrong")

    assert states == {"collective": "wrong"}
    assert messages == ["a copy from CPU:0 to CPU:1 arrived damaged (1 of 1 values)"]
