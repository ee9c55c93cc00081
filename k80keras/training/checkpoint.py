"""Everything that an epoch leaves behind, appearing by one rename.

A checkpoint is a folder `epoch-0003`: `model.keras` (weights, optimizer slots,
iterations) and `state.json` (epochs, settings, history). It is written under
another name and renamed when it is complete, so a kill at any moment leaves the
last complete epoch as it was.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, Callable

from k80keras.errors import InvalidArgumentError
from k80keras.files import flush_to_disk

_TEMPORARY = ".tmp-"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A complete epoch on disk.

    Attributes:
      path: Path of its folder.
      epochs: Int. How many epochs were complete.
      identity: Dict. What decided what was learnt, by flag.
      history: Tuple of dicts, one for each epoch, name to number.
    """

    path: Path
    epochs: int
    identity: dict[str, Any]
    history: tuple[dict[str, float], ...]

    @property
    def model_path(self) -> Path:
        """Where the model is."""
        return self.path / "model.keras"


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """Returns the newest checkpoint in `folder`; `None` if there is none.

    Raises:
      InvalidArgumentError: If it was damaged by somebody else.
    """
    paths = sorted(folder.glob("epoch-*"), key=_number)
    if not paths:
        return None
    path = paths[-1]
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if not (path / "model.keras").is_file():
            raise FileNotFoundError("model.keras is missing")
        return Checkpoint(
            path, state["epochs"], state["identity"], tuple(state["history"])
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidArgumentError(
            f"A checkpoint must be complete. Received: {path} ({error}). Delete that "
            "folder to go on from what is left, or name another --output_dir"
        ) from error


def save_checkpoint(
    folder: Path,
    save_model: Callable[[str], Any],
    identity: dict[str, Any],
    history: list[dict[str, float]],
) -> Checkpoint:
    """Saves a complete epoch and deletes the ones before it.

    Args:
      folder: Path of the folder of all checkpoints. It is made if missing.
      save_model: Callable that writes the model to a given path.
      identity: Dict. What decides what is learnt, by flag.
      history: List of dicts, one for each epoch so far, name to number.

    Returns:
      The new `Checkpoint`.
    """
    folder.mkdir(exist_ok=True)
    discard_leftovers(folder)
    new = Checkpoint(
        folder / f"epoch-{len(history):04d}", len(history), identity, tuple(history)
    )
    temporary = folder / f"{_TEMPORARY}{new.path.name}"
    temporary.mkdir()
    save_model(str(temporary / new.model_path.name))
    state = {"epochs": new.epochs, "identity": identity, "history": history}
    (temporary / "state.json").write_text(json.dumps(state), encoding="utf-8")
    for path in (*temporary.iterdir(), temporary):
        flush_to_disk(path)
    temporary.rename(new.path)
    flush_to_disk(folder)
    for path in folder.glob("epoch-*"):
        if path != new.path:
            # Renamed first: half a checkpoint must never carry that name.
            path.rename(folder / f"{_TEMPORARY}old-{path.name}")
    discard_leftovers(folder)
    return new


def discard_leftovers(folder: Path) -> None:
    """Deletes what an interrupted `save_checkpoint` left behind."""
    for path in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(path)


def require_same(checkpoint: Checkpoint, identity: dict[str, Any]) -> None:
    """Checks that a run goes on as it began.

    Raises:
      InvalidArgumentError: If a setting differs; names the flag and the cure.
    """
    for name, now in identity.items():
        before = checkpoint.identity.get(name)
        if before != now:
            cure = f"--{name}={before}" if before is not None else f"no --{name}"
            raise InvalidArgumentError(
                f"A resumed run must keep its --{name}: it began with {before}. "
                f"Received: {now}. Resume with {cure}, or name another --output_dir"
            )


def _number(path: Path) -> int:
    digits = path.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1
