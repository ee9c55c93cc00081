"""A process that a library may abort or hang, and that answers until then."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
from typing import Any, Mapping, Sequence

from k80keras.machine.sources.child import with_import_path

_LOG_LINES = 20
_LOG_BYTES = 8192
# From the last word of a process that crashes to its end.
_CRASH_SECONDS = 10.0
# Time, process and place in the source, in TensorFlow's log.
_LOG_PREFIX = re.compile(r"^(\d{4}-\d\d-\d\d|[IWEF]\d{4}) [^\]]*\] ")


class SmokeProcess:
    """Runs `smoke.child` until an answer fails to come.

    Args:
      timeout_seconds: Float. Time for each answer.
      environ: Mapping, its environment.

    Attributes:
      ended: Bool. Whether nobody is there to ask any more.
      log: Tuple of strings, the last lines of a process that gave no answer.
    """

    def __init__(self, timeout_seconds: float, environ: Mapping[str, str]) -> None:
        self._timeout_seconds = timeout_seconds
        self.ended = False
        self.log: tuple[str, ...] = ()
        self._output = tempfile.TemporaryFile()
        self._connection, theirs = multiprocessing.Pipe()
        number = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "k80keras.machine.smoke.child", str(number)],
                env=_child_environ(environ),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[number],
                # A group of its own: what it starts can be ended with it.
                start_new_session=True,
            )

    def ask(self, operation: str, devices: Sequence[str]) -> dict[str, Any]:
        """Runs an operation in the process.

        Returns:
          Dict with `state`: what the process answered, else `"aborted"` or
          `"hung"` with a `message`, and the process is no more.
        """
        try:
            self._connection.send_bytes(json.dumps([operation, devices]).encode())
            if self._connection.poll(self._timeout_seconds):
                return dict(json.loads(self._connection.recv_bytes()))
            state, message = "hung", f"hung for {self._timeout_seconds:g} s"
        except (EOFError, OSError):
            state, message = "aborted", self._how_it_ended()
        self._kill()
        self.log = self._last_lines()
        self.stop()
        last_words = [_LOG_PREFIX.sub("", line) for line in self.log[-1:]]
        return {"state": state, "message": ": ".join([message, *last_words])}

    def stop(self) -> None:
        """Ends the process, and those that it started."""
        if not self.ended:
            self._kill()
            self._connection.close()
            self._output.close()
            self.ended = True

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CRASH_SECONDS)
        code = self._process.poll()
        if code is None:
            return "broke off"
        if code < 0:
            return f"aborted the process (signal {-code})"
        return f"ended the process (exit code {code})"

    def _last_lines(self) -> tuple[str, ...]:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _LOG_BYTES))
        text = self._output.read().decode(errors="replace")
        lines = (line.strip() for line in text.splitlines())
        return tuple(filter(None, lines))[-_LOG_LINES:]


def _child_environ(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        **with_import_path(environ),
        # TensorFlow is what is tested, whatever the user's Keras runs on.
        "KERAS_BACKEND": "tensorflow",
    }
