"""Who among the callbacks must see the model after which training steps."""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from k80keras import _keras
from k80keras._keras import keras


@dataclasses.dataclass(frozen=True)
class SavePoint:
    """An integer `save_freq`: the step after which files must be right.

    Attributes:
      interval: Int. Steps from one save to the next.
      phase: Int. Steps since the last save when training began.
      owner: String. The class name of the callback.
    """

    interval: int
    phase: int
    owner: str

    def steps_until(self, steps_done: int) -> int:
        """Returns how many steps may run before the next save (at least 1)."""
        since = (self.phase + steps_done) % self.interval
        return self.interval - since


def save_points(callbacks: Sequence[Any]) -> list[SavePoint]:
    """Returns the steps after which Keras' own callbacks write files."""
    points = []
    for callback in callbacks:
        if _saves_by_count(callback):
            interval: int = callback.save_freq
            phase = _keras.batches_since_save(callback)
            points.append(SavePoint(interval, phase, type(callback).__name__))
    return points


def who_needs_every_batch(callbacks: Sequence[Any], mode: str) -> str | None:
    """Returns the class name of a callback that must see each single step.

    Args:
      callbacks: Callbacks of the running `fit`.
      mode: `"train"` or `"test"`.
    """
    for callback in callbacks:
        for hook in _keras.BATCH_HOOKS[mode]:
            home = _keras.hook_home(callback, hook)
            if home is None:
                continue
            if not _keras.is_keras_own(home) or _keras_own_needs(callback, mode):
                return type(callback).__name__
    return None


def _keras_own_needs(callback: Any, mode: str) -> bool:
    """Whether one of Keras' own batch hooks looks at each step."""
    decides = _keras.hook_home(callback, "_should_save_on_batch")
    if decides is not None and not _keras.is_keras_own(decides):
        return True
    if isinstance(callback, keras.callbacks.ProgbarLogger):
        return False  # it shows the newest logs, and the last are always right
    if isinstance(callback, keras.callbacks.TensorBoard):
        if mode == "test":
            return False  # it only counts
        return bool(callback.update_freq != "epoch" or callback._should_trace)
    if _saves_by_count(callback):
        return False  # a SavePoint
    return bool(getattr(callback, "save_freq", None) != "epoch")


def _saves_by_count(callback: Any) -> bool:
    kinds = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)
    frequency = getattr(callback, "save_freq", None)
    # Saving before a preemption looks at each batch.
    careful = getattr(callback, "save_before_preemption", False)
    return (
        isinstance(callback, kinds)
        and isinstance(frequency, int)
        and not isinstance(frequency, bool)
        and frequency > 0
        and not careful
    )
