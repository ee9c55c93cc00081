"""The folder that a run owns: checked before training, held by one process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from k80keras.errors import InvalidArgumentError
from k80keras.training.locks import lock

CHECKPOINTS = "checkpoints"
MODEL = "model.keras"
HISTORY = "history.csv"
TUNING = "tuning.json"
REPORT = "report.html"


@contextmanager
def claimed(path: Path, resume: bool) -> Iterator[None]:
    """Holds `path` for this run; while it is held no other run gets it.

    Args:
      path: Folder for the results. It is made if it doesn't exist, and removed
        again if it is still empty at the end.
      resume: Bool. Whether results of an earlier run may be there.

    Raises:
      InvalidArgumentError: If the folder can't be written, if another process
        holds it, or if it holds results and `resume` is `False`.
    """
    existed = path.is_dir()
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Access rights don't tell for read-only file systems, so try.
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InvalidArgumentError(
            "--output_dir must be a folder that can be written. Received: "
            f"{path} ({error.strerror}). Name another one with --output_dir"
        ) from error
    with lock(path, wait=False) as mine:
        if not mine:
            raise InvalidArgumentError(
                f"--output_dir must belong to one run at a time, and another process "
                f"is training there. Received: {path}. Name another one with "
                "--output_dir"
            )
        for leftover in path.glob(".tmp-*"):
            leftover.unlink(missing_ok=True)
        require_no_other_run(path, resume)
        try:
            yield
        finally:
            if not existed and not any(path.iterdir()):
                path.rmdir()


def require_no_other_run(path: Path, resume: bool) -> None:
    """Checks that a folder holds no results, or that they are to be gone on with.

    Raises:
      InvalidArgumentError: If it does and `resume` is `False`.
    """
    found = [p for p in (CHECKPOINTS, MODEL, HISTORY) if _holds(path / p)]
    if found and not resume:
        raise InvalidArgumentError(
            f"--output_dir must not hold another run ({found[0]} is there). "
            f"Received: {path}. Go on with that run with --resume, or name "
            "another folder with --output_dir"
        )


def _holds(path: Path) -> bool:
    """Returns whether there is a file, or a folder with a finished entry."""
    if path.is_dir():
        return any(not name.startswith(".tmp-") for name in os.listdir(path))
    return path.exists()
