"""A lock that dies with its process, whatever killed it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def lock(folder: Path, wait: bool) -> Iterator[bool]:
    """Locks an existing folder, without leaving a file in it.

    Args:
      folder: Path of the folder.
      wait: Bool. Whether to wait for a process that holds the lock.

    Yields:
      Bool: whether the lock was had. `True` also where the system or the file
      system has no such locks: then nothing protects.
    """
    if fcntl is None:
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass  # some network file systems
        yield True
    finally:
        os.close(descriptor)
