"""What stands in for Keras' train function where it must run as it is.

It only counts steps and, every few seconds, times the wait for one batch: that
batch is pulled first and given to Keras' function in an iterator of its own.
"""

from __future__ import annotations

import time
from typing import Any, Callable

from k80keras._keras import tf
from k80keras.fit.fused import can_replay, replay, step_without_data

_SAMPLE_SECONDS = 5.0


class Observer:
    """Calls `plain` for every call, and watches.

    Args:
      plain: Keras' own train function.
      steps_per_call: Function that returns how many steps the next call runs.
      clock: Function that returns seconds.
      drain: See `Stepper`.
      is_asked: See `Stepper`.
    """

    def __init__(
        self,
        plain: Callable[[Any], Any],
        steps_per_call: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = time.perf_counter,
        drain: Callable[[Any], None] | None = None,
        is_asked: Callable[[], bool] = lambda: True,
    ) -> None:
        self.plain = plain
        self.steps_done = 0
        self.wait_seconds = 0.0
        self.observed_seconds = 0.0
        self.steps_per_call = steps_per_call
        self._clock = clock
        self._drain = drain
        self._is_asked = is_asked
        self._armed = False
        self._iterator: Any = None
        self._left: int | None = None
        self._next_sample = 0.0
        self._logs: Any = None

    def begin(self, steps: int | None) -> None:
        """Arms for one epoch of `steps` steps (`None`: not known)."""
        self.end()
        self._armed, self._left = True, steps

    def end(self) -> None:
        """Disarms: calls are passed on and not counted."""
        self._armed = False
        self._iterator = self._logs = None

    def __call__(self, iterator: Any) -> Any:
        """Runs what Keras would run; returns its logs."""
        if self._armed and self._is_asked():
            self._armed, self._iterator = False, iterator
        elif iterator is not self._iterator:
            return self.plain(iterator)
        steps = self.steps_per_call()
        sampled = steps == 1 and self._sample_due()
        logs = self._sampled(iterator) if sampled else self.plain(iterator)
        if self._left is not None:
            steps = min(steps, self._left)
            self._left -= steps
        self.steps_done += steps
        self._logs = logs
        return logs

    def _sample_due(self) -> bool:
        # The first step traces; the second shows what waiting is like.
        return self.steps_done > 0 and self._clock() >= self._next_sample

    def _sampled(self, iterator: Any) -> Any:
        if not can_replay(iterator):
            self._next_sample = float("inf")
            return self.plain(iterator)
        if self._drain is not None:
            self._drain(self._logs)
        started = self._clock()
        try:
            batch = iterator.get_next_as_optional()
        except tf.errors.OpError:
            step_without_data(self.plain, iterator)
            raise
        if not batch.has_value():
            return self.plain(iterator)
        waited = self._clock() - started
        source = replay(batch.get_value(), iterator.element_spec)
        resumed = self._clock()
        logs = self.plain(source)
        if self._drain is not None:
            self._drain(logs)
        now = self._clock()
        self.wait_seconds += waited
        self.observed_seconds += waited + now - resumed
        self._next_sample = now + _SAMPLE_SECONDS
        return logs
