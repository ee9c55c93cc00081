"""Keeps TensorFlow's remarks about itself off the terminal while it loads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hides what native libraries write to standard error; errors show it all.

    The remarks come from C++, some of them whatever the log level is, and would
    bury the one line that says which flag is wrong. `TF_CPP_MIN_LOG_LEVEL=0`
    shows everything.
    """
    if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2") == "0":
        yield
        return
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(terminal, said.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
