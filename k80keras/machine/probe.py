"""This machine as plain values; no GPU is initialised in this process."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from importlib import machinery
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping

from k80keras.errors import InvalidArgumentError
from k80keras.machine import nvml, self_test
from k80keras.machine.sources.child import (
    DIES_WITH_PARENT,
    NoAnswerError,
    run,
    with_import_path,
)
from k80keras.machine.sources.cuda_tools import read_cuda_tools
from k80keras.machine.sources.host import read_host
from k80keras.machine.sources.kernel_driver import read_kernel_driver
from k80keras.machine.sources.libcuda import read_libcuda
from k80keras.machine.sources.pci import read_pci
from k80keras.machine.sources.tensorflow_build import read_tensorflow_build
from k80keras.machine.sources.tensorflow_run import read_tensorflow_run
from k80keras.machine.system import NVMLReading, System, TensorFlowRun

SOURCES = (
    "host",
    "pci",
    "driver",
    "libcuda",
    "nvml",
    "cuda_tools",
    "tensorflow",
    "self_test",
    "tensorflow_run",
)

# Reading takes milliseconds, asking NVML up to a second where the driver has to
# wake the card; TensorFlow's import may take half a minute from a network disk.
_SECONDS = 4.0
_TENSORFLOW_SECONDS = 60.0
# Those that decide about GPUs. No more of TF_ and NVIDIA_: Terraform's tokens and
# NVIDIA's keys begin so, too.
_VARIABLES = re.compile(
    "(CUDA|NCCL|XLA)_.*|LD_(LIBRARY_PATH|PRELOAD)|NVIDIA_(VISIBLE|DRIVER)_.*|"
    "TF_(CONFIG|CPP|CUDNN|DETERMINISTIC|DISABLE|ENABLE|FORCE|GPU|NUM|USE|XLA).*"
)


def probe(
    sources: Iterable[str] | None = None,
    *,
    root: str = "/",
    environ: Mapping[str, str] | None = None,
) -> System:
    """Looks at this machine.

    All sources are read side by side. What is foreign code (the driver's
    libraries, TensorFlow) is asked in processes of their own, so that no GPU is
    initialised in this one, and a source that hangs, crashes or talks rubbish
    costs only its own answer: `System.failures` names it.

    Args:
      sources: Names out of `SOURCES`. Defaults to all of them; TensorFlow is
        only asked to run if it is installed.
      root: Folder under which `/proc`, `/sys` and `/etc` are read.
      environ: Mapping, the environment in which programs would be started.
        Defaults to `os.environ`.

    Raises:
      InvalidArgumentError: If a source is unknown.
    """
    wanted = SOURCES if sources is None else tuple(sources)
    unknown = sorted(set(wanted) - set(SOURCES))
    if unknown:
        raise InvalidArgumentError(
            f"probe: sources must be among {', '.join(SOURCES)}. "
            f"Received: {', '.join(unknown)}"
        )
    place, path = Path(root), list(sys.path)
    environ = dict(os.environ if environ is None else environ)
    readers: dict[str, Callable[[], Any]] = {
        "host": lambda: read_host(place, environ),
        "pci": lambda: read_pci(place),
        "driver": lambda: read_kernel_driver(place),
        "libcuda": lambda: read_libcuda(environ, _SECONDS),
        "nvml": lambda: _read_nvml(environ),
        "cuda_tools": lambda: read_cuda_tools(environ, path, _SECONDS),
        "tensorflow": lambda: read_tensorflow_build(path),
        "self_test": lambda: self_test.read(self_test.path_of(environ)),
        "tensorflow_run": lambda: _run_tensorflow(path, environ),
    }
    # TensorFlow last: it waits for the same driver, and longer.
    order = sorted(wanted, key=lambda name: name == "tensorflow_run")
    readings = [_Reading(name, readers[name]) for name in order]
    started = time.monotonic()
    for reading in readings:
        reading.start()
    values: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for reading in readings:
        hung = [r.name for r in readings if r.name in ("libcuda", "nvml") and r.hangs]
        if reading.name == "tensorflow_run" and hung:
            failures[reading.name] = f"{hung[0]} hangs, and TensorFlow would, too"
            continue
        slow = reading.name == "tensorflow_run"
        # A child's own limit comes first and says more.
        limit = started + 1 + (_TENSORFLOW_SECONDS if slow else _SECONDS)
        reading.join(max(0.0, limit - time.monotonic()))
        if reading.failure is None:
            values[reading.name] = reading.value
        else:
            failures[reading.name] = reading.failure
    shown = {k: v for k, v in sorted(environ.items()) if _VARIABLES.fullmatch(k)}
    return System(**values, environ=shown, failures=failures)


class _Reading(threading.Thread):
    """Reads one source; a daemon, so that a hung one does not keep the process."""

    def __init__(self, name: str, read: Callable[[], Any]) -> None:
        super().__init__(name=f"k80keras-probe-{name}", daemon=True)
        self.name, self._read = name, read
        self.value: Any = None
        self.failure: str | None = "no answer in time"
        self.hangs = True

    def run(self) -> None:
        try:
            self.value = self._read()
            self.failure = None
            self.hangs = False
        except Exception as error:  # whatever a source does stays here
            self.failure = f"{type(error).__name__}: {error}"
            self.hangs = isinstance(error, NoAnswerError)


def _read_nvml(environ: Mapping[str, str]) -> NVMLReading:
    code = f"{DIES_WITH_PARENT}from {nvml.__name__} import read, to_json\n"
    command = [sys.executable, "-c", code + "print(to_json(read()))"]
    return nvml.from_json(run(command, with_import_path(environ), _SECONDS))


def _run_tensorflow(
    path: list[str], environ: Mapping[str, str]
) -> TensorFlowRun | None:
    if machinery.PathFinder.find_spec("tensorflow", path) is None:
        return None
    return read_tensorflow_run(with_import_path(environ), _TENSORFLOW_SECONDS)
