"""The smoke test against TensorFlow, whole and broken in many ways.

Where the real TensorFlow needs too long, a package named `tensorflow` that
computes with NumPy takes its place; the child process is always a real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

from k80keras.errors import InvalidArgumentError
from k80keras.machine.smoke.ops import OPERATIONS
from k80keras.machine.smoke.result import SmokeReport
from k80keras.machine.smoke.run import run_smoke

# Two dies of a K80, as far as `add`, `matmul` and `fft` can tell.
FAKE = """
import contextlib, os, subprocess, sys, time
from types import SimpleNamespace as Space
import numpy as np

__version__ = "0.1"

class keras:
    class Model:
        pass

places = []

@contextlib.contextmanager
def device(name):
    places.append(name)
    yield
    places.pop()

constant, add = np.array, np.add
linalg = Space(matmul=lambda x, y: x @ y)
signal = Space(fft=lambda x: np.fft.fft(x).astype(x.dtype))
test = Space(experimental=Space(sync_devices=lambda: None))
config = Space(
    list_physical_devices=lambda kind: ["a die", "another"] if kind == "GPU" else [],
    list_logical_devices=lambda: [],
    experimental=Space(
        enable_tensor_float_32_execution=lambda enabled: None,
        get_device_details=lambda gpu: {
            "device_name": "Tesla K80", "compute_capability": (3, 7)
        },
    ),
)
"""
Fake = Callable[[str], "dict[str, str]"]


def environ_with(folder: Path) -> dict[str, str]:
    """Returns an environment whose Python looks into the folder first."""
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUDA_VISIBLE_DEVICES": "-1",
    }


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    """Returns a function that makes a fake TensorFlow out of extra lines."""

    def make(lines: str) -> dict[str, str]:
        code = FAKE + textwrap.dedent(lines)
        (tmp_path / "tensorflow.py").write_text(code)
        return environ_with(tmp_path)

    yield make


def states(report: SmokeReport) -> dict[str, str]:
    return {f"{r.operation} {r.device}": r.state for r in report.results}


def messages(report: SmokeReport) -> dict[str, str]:
    return {f"{r.operation} {r.device}": r.message for r in report.results}


@pytest.mark.slow
def test_passes_on_this_cpu(tmp_path: Path) -> None:
    report = run_smoke(environ=environ_with(tmp_path))
    assert not report.failures, report.failures
    assert [(r.operation, r.device, r.state) for r in report.results] == [
        ("import", "host", "ok"),
        ("devices", "host", "ok"),
        *((name, "CPU:0", "ok") for name in OPERATIONS if name != "all_reduce"),
        ("all_reduce", "CPU:0,CPU:1", "ok"),
    ]
    assert report.devices == ("CPU:0",)
    assert report.log == ()
    for result in report.results:
        assert result.seconds and result.seconds > 0 and result.message
        told = OPERATIONS.get(result.operation)
        assert (result.rate is not None) == bool(told and told.rate_unit)
        assert result.library == "TensorFlow"  # no library of CUDA's is in play


@pytest.mark.slow
def test_one_broken_library_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import os, sys
            import tensorflow as tf

            def abort(x):
                log = "2026-12-03 13:33:28.972888: F tensorflow/fft.cc:114] no cufft"
                print(log, file=sys.stderr, flush=True)
                os.abort()

            def refuse(a, b):
                raise tf.errors.InternalError(None, None, "cusolver says no")

            svd = tf.linalg.svd
            tf.signal.fft = abort
            tf.linalg.solve = refuse
            tf.linalg.svd = lambda a: [1.001 * part for part in svd(a)]
            """
        )
    )
    report = run_smoke(
        operations=["matmul", "fft", "solve", "svd", "random"],
        environ=environ_with(tmp_path),
    )
    assert states(report) == {
        "import host": "ok",
        "devices host": "ok",
        "matmul CPU:0": "ok",
        "fft CPU:0": "aborted",
        "solve CPU:0": "failed",
        "svd CPU:0": "wrong",
        "random CPU:0": "ok",
    }
    told = messages(report)
    assert told["fft CPU:0"] == (
        "fft on CPU:0 aborted the process (signal 6): no cufft"
    )
    assert told["solve CPU:0"] == (
        "solve on CPU:0 raised InternalError: cusolver says no"
    )
    assert told["svd CPU:0"].startswith(
        "svd on CPU:0 gave wrong values: the singular values: off by"
    )
    assert report.log[-1].endswith("F tensorflow/fft.cc:114] no cufft")


@pytest.mark.parametrize(
    "lines, state, message",
    [
        ("raise ImportError('libx.so: no')", "failed", "raised ImportError: libx.so"),
        ("os.abort()", "aborted", "aborted the process (signal 6)"),
        ("sys.exit(3)", "aborted", "ended the process (exit code 3)"),
        pytest.param(
            "time.sleep(1000)", "hung", "hung for 5 s", marks=pytest.mark.slow
        ),
        ("keras = None", "failed", "raised AttributeError"),
    ],
)
def test_import_of_tensorflow_fails(
    fake: Fake, lines: str, state: str, message: str
) -> None:
    report = run_smoke(5.0, environ=fake(lines))
    assert states(report) == {"import host": state}
    assert f"importing TensorFlow {message}" in messages(report)["import host"]
    assert report.devices == ()


@pytest.mark.parametrize(
    "lines, state, message",
    [
        ("config.list_logical_devices = os.abort", "aborted", "aborted the process"),
        ("config.list_physical_devices = lambda kind: 42", "failed", "TypeError"),
        ("del config", "failed", "AttributeError"),
    ],
)
def test_start_of_the_devices_fails(
    fake: Fake, lines: str, state: str, message: str
) -> None:
    report = run_smoke(environ=fake(lines))
    assert states(report) == {"import host": "ok", "devices host": state}
    assert messages(report)["devices host"].startswith("starting the devices ")
    assert message in messages(report)["devices host"]


def test_the_die_that_aborts_is_named(fake: Fake) -> None:
    environ = fake(
        """
        def matmul(x, y):
            if places[-1] == "GPU:1":
                os.abort()
            return x @ y

        linalg.matmul = matmul
        """
    )
    report = run_smoke(operations=["matmul", "fft"], environ=environ)
    told = states(report)
    assert report.devices == ("GPU:0", "GPU:1")
    assert told.pop("matmul GPU:0") in ("ok", "slow")
    assert told == {
        "import host": "ok",
        "devices host": "ok",
        "fft GPU:0": "ok",
        "matmul GPU:1": "aborted",
        "fft GPU:1": "ok",
    }
    assert messages(report)["matmul GPU:1"] == (
        "matmul on GPU:1 aborted the process (signal 6)"
    )
    assert {r.library for r in report.results[2:]} == {"cuBLAS", "cuFFT"}


@pytest.mark.slow
def test_the_rest_runs_after_a_hang(fake: Fake) -> None:
    environ = fake(
        """
        config.list_physical_devices = lambda kind: ["a die"]
        linalg.matmul = lambda x, y: time.sleep(1000)
        """
    )
    report = run_smoke(8.0, operations=["matmul", "fft"], environ=environ)
    assert [r.state for r in report.results[2:]] == ["hung", "ok"]
    assert messages(report)["matmul GPU:0"] == "matmul on GPU:0 hung for 8 s"


def test_rubbish_is_wrong(fake: Fake) -> None:
    environ = fake("linalg.matmul = lambda x, y: np.zeros_like(x)")
    report = run_smoke(operations=["matmul"], environ=environ)
    assert [r.state for r in report.results[2:]] == ["wrong", "wrong"]
    environ = fake("signal.fft = lambda x: 'text'")
    report = run_smoke(operations=["fft"], environ=environ)
    assert {r.state for r in report.results[2:]} <= {"wrong", "failed"}


def test_a_device_that_always_fails_is_given_up(fake: Fake) -> None:
    # The fake has none of these.
    names = ["convolution", "solve", "svd", "random", "fit", "all_reduce"]
    report = run_smoke(operations=names, environ=fake(""))
    each = ["failed"] * 4 + ["skipped"]
    assert [r.state for r in report.results[2:]] == [*each, *each, "skipped"]
    assert messages(report)["fit GPU:1"] == (
        "fit on GPU:1 was not run: GPU:1 failed 4 times before"
    )


def test_a_process_that_does_not_start_again(fake: Fake, tmp_path: Path) -> None:
    environ = fake(
        f"""
        if os.path.exists({str(tmp_path / "seen")!r}):
            raise OSError("the driver is gone")
        open({str(tmp_path / "seen")!r}, "w").close()
        add = lambda x, y: os.abort()
        """
    )
    report = run_smoke(operations=["add", "matmul"], environ=environ)
    assert [r.state for r in report.results[2:]] == ["aborted"] + ["skipped"] * 3
    assert messages(report)["matmul GPU:0"] == (
        "matmul on GPU:0 was not run: "
        "importing TensorFlow raised OSError: the driver is gone"
    )


def test_two_dies_are_needed_for_a_sum(fake: Fake) -> None:
    environ = fake("config.list_physical_devices = lambda kind: ['a die']")
    report = run_smoke(operations=["all_reduce"], environ=environ)
    assert states(report)["all_reduce GPU:0"] == "skipped"
    assert messages(report)["all_reduce GPU:0"].endswith("needs a second device")


# Leaves the ids of the child and of a process that it started, and hangs.
FAMILY = """
pids = [os.getpid(), subprocess.Popen(["sleep", "1000"]).pid]
with open(os.environ["PIDS"] + ".new", "w") as file:
    file.write(" ".join(map(str, pids)))
os.rename(file.name, os.environ["PIDS"])
time.sleep(1000)
"""


@pytest.mark.slow
def test_a_timeout_leaves_nobody_behind(fake: Fake, tmp_path: Path) -> None:
    environ = {**fake(FAMILY), "PIDS": str(tmp_path / "pids")}
    assert [r.state for r in run_smoke(5.0, environ=environ).results] == ["hung"]
    for pid in wait_for_pids(tmp_path / "pids"):
        wait_for_end(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_end_of_the_parent_leaves_no_child(
    fake: Fake, tmp_path: Path, number: signal.Signals
) -> None:
    environ = {**fake(FAMILY), "PIDS": str(tmp_path / "pids")}
    code = "from k80keras.machine.smoke.run import run_smoke; run_smoke()"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stderr=subprocess.DEVNULL
    ) as parent:
        child, grandchild = wait_for_pids(tmp_path / "pids")
        parent.send_signal(number)
    wait_for_end(child)
    if number == signal.SIGINT:
        wait_for_end(grandchild)
    else:
        os.kill(grandchild, signal.SIGKILL)


def wait_for_pids(path: Path) -> list[int]:
    deadline = time.monotonic() + 60.0
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return list(map(int, path.read_text().split()))


def wait_for_end(pid: int) -> None:
    """Returns when the process is gone, or is dead and waits for its parent."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return
        if status.rpartition(")")[2].split()[0] in ("Z", "X"):
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} still runs")


def test_tensorflow_is_not_imported_here(fake: Fake) -> None:
    code = """
    import sys
    from k80keras.machine.smoke.run import run_smoke
    run_smoke(operations=["fft"])
    print("tensorflow" in sys.modules or "keras" in sys.modules)
    """
    run = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.check_output(run, env=fake(""), text=True) == "False\n"


def test_arguments_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match=r"add, matmul.*Received.*'relu'"):
        run_smoke(operations=["matmul", "relu"])
    with pytest.raises(InvalidArgumentError, match="positive.*timeout_seconds=0"):
        run_smoke(0.0)
