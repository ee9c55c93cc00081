"""Files that are either the old ones or the new ones, never something between."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a path to write to; at the end of the block it becomes `path`.

    Whoever reads `path` meanwhile, or after a kill or a crash, finds the old
    file. If the block raises, nothing changes.

    Args:
      path: Where the file is to appear. Its folder must exist.

    Yields:
      Path in the same folder.
    """
    target = Path(path)
    descriptor, name = tempfile.mkstemp(
        prefix=f".tmp-{target.name}-", dir=target.parent
    )
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        # `mkstemp` makes private files; a result is as readable as any other.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        flush_to_disk(temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replaces the file at `path` by one with `text`, in one step."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode())


def flush_to_disk(path: Path) -> None:
    """Waits until a file's bytes, or a folder's entries, would outlive a crash."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
