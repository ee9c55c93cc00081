"""The callback that makes each complete epoch outlive a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from k80keras._keras import keras
from k80keras.files import write_text
from k80keras.training import output
from k80keras.training.checkpoint import save_checkpoint
from k80keras.training.history import to_csv


class EpochCheckpoint(keras.callbacks.Callback):
    """Saves model and history together at the end of each epoch.

    Args:
      folder: Path. The run's output folder, which exists.
      identity: Dict. What decides what is learnt, by flag.
      history: List of dicts, one for each epoch that is already complete.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], history: list[dict[str, float]]
    ) -> None:
        super().__init__()
        self._folder = folder
        self._identity = identity
        self._history = list(history)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        row = {name: float(value) for name, value in (logs or {}).items()}
        self._history.append(row)
        save_checkpoint(
            self._folder / output.CHECKPOINTS,
            self.model.save,
            self._identity,
            self._history,
        )
        # A copy for people; a resumption reads the checkpoint.
        write_text(self._folder / output.HISTORY, to_csv(self._history))
