"""A process that a library may abort or hang, and that answers until then."""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import Any, Callable, Mapping

from k80keras.machine.sources.child import with_import_path

_LOG_LINES = 20
_LOG_BYTES = 8192
# From the last word of a process that crashes to its end.
_CRASH_SECONDS = 10.0
# Time, process and place in the source, in TensorFlow's log.
_LOG_PREFIX = re.compile(r"^(\d{4}-\d\d-\d\d|[IWEF]\d{4}) [^\]]*\] ")

_WHERE_MADE = re.compile(
    r"^Graph execution error:.*?(\nNode: [^\n]*\n|<stack traces unavailable>\n)", re.S
)


class AskedProcess:
    """Runs a module that calls `answer_requests`, until an answer fails to come.

    Args:
      module: String, its name.
      environ: Mapping, its environment.

    Attributes:
      ended: Bool. Whether nobody is there to ask any more.
      log: Tuple of strings, the last lines of a process that gave no answer.
    """

    def __init__(self, module: str, environ: Mapping[str, str]) -> None:
        self.ended = False
        self.log: tuple[str, ...] = ()
        self._output = tempfile.TemporaryFile()
        self._connection, theirs = multiprocessing.Pipe()
        number = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(number)],
                env=_child_environ(environ),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[number],
                # A group of its own: what it starts can be ended with it.
                start_new_session=True,
            )

    def ask(self, request: Any, timeout_seconds: float) -> dict[str, Any]:
        """Sends a request to the process and waits for its answer.

        Args:
          request: Plain values, which travel as JSON.
          timeout_seconds: Float. Time for the answer.

        Returns:
          Dict with `state`: what the process answered, else `"aborted"` or
          `"hung"` with a `message`, and the process is no more.
        """
        try:
            self._connection.send_bytes(json.dumps(request).encode())
            if self._connection.poll(timeout_seconds):
                return dict(json.loads(self._connection.recv_bytes()))
            state, message = "hung", f"hung for {timeout_seconds:g} s"
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


def answer_requests(answer: Callable[[Any], dict[str, Any]]) -> None:
    """Answers, in the process that `AskedProcess` started, until it hangs up.

    An exception becomes an answer with the `state` `"failed"`.

    Args:
      answer: Function from a request to a dict with `state`, which travels as
        JSON.
    """
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
            request = json.loads(connection.recv_bytes())
        except EOFError:
            break
        try:
            told = answer(request)
        except Exception as error:
            told = {"state": "failed", "message": _first_line(error)}
        connection.send_bytes(json.dumps(told).encode())
    # TensorFlow may crash while Python takes it apart.
    os._exit(0)


def _first_line(error: Exception) -> str:
    # TensorFlow adds the names of nodes and operations, and where they were made.
    text = re.sub(_WHERE_MADE, "", str(error))
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*", "", text)
    lines = text.strip().splitlines()
    if lines and lines[0] == "in user code:":
        return lines[-1].strip()  # the error, below its traceback
    return ": ".join([type(error).__name__, *lines[:1]])
