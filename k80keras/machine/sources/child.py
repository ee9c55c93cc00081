"""Foreign code is asked in a process of its own: it may hang, or crash."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any, Mapping, Sequence


def run(
    command: Sequence[str], environ: Mapping[str, str], timeout_seconds: float
) -> str:
    """Returns what a program prints.

    Raises:
      RuntimeError: If it fails, crashes, or takes longer than
        `timeout_seconds`; says which, with its last words.
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
        raise RuntimeError(f"no answer within {timeout_seconds:g} s") from error
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
    told = run([sys.executable, *options, "-c", code], environ, timeout_seconds)
    lines = told.strip().splitlines() or [""]
    try:
        return json.loads(lines[-1])
    except ValueError:
        raise RuntimeError(f"answered rubbish: {lines[-1][:80]!r}") from None
