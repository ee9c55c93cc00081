"""Foreign code is asked in a process of its own: it may hang, or crash."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any, Mapping, Sequence

# A child that hangs does not notice that nobody waits any more. 1: at the death of
# the parent (the thread that started this, to be exact), signal 9.
DIES_WITH_PARENT = """
import ctypes, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
"""


def with_import_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which a child imports what this process imports."""
    places = [environ.get("PYTHONPATH", ""), *sys.path]
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


class NoAnswerError(RuntimeError):
    """A child took too long."""


def run(
    command: Sequence[str], environ: Mapping[str, str], timeout_seconds: float
) -> str:
    """Returns what a program prints.

    Raises:
      NoAnswerError: If it takes longer than `timeout_seconds`.
      RuntimeError: If it fails or crashes; says which, with its last words.
    """
    child = subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        told, complaint = child.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired as error:
        os.killpg(child.pid, signal.SIGKILL)
        # A process hung inside a driver cannot even be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=0.5)
        raise NoAnswerError(f"no answer within {timeout_seconds:g} s") from error
    if child.returncode == 0:
        return told
    last = (complaint.strip().splitlines() or ["nothing said"])[-1]
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        raise RuntimeError(f"crashed with {name}: {last}")
    raise RuntimeError(last)


def ask_python(
    code: str, environ: Mapping[str, str], timeout_seconds: float, *options: str
) -> Any:
    """Returns the value that Python code prints, as JSON, in its last line."""
    command = [sys.executable, *options, "-c", DIES_WITH_PARENT + code]
    told = run(command, environ, timeout_seconds)
    lines = told.strip().splitlines() or [""]
    try:
        return json.loads(lines[-1])
    except ValueError:
        raise RuntimeError(f"answered rubbish: {lines[-1][:80]!r}") from None
