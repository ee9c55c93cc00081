"""What stands in for Keras' train (or test) function during one `fit`.

Keras calls it once a step. It runs several steps in the first of those calls
and answers the others with the same logs, so that Keras' own counting of
steps, its progress bar and its hooks stay right.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, ContextManager, NamedTuple, Protocol

from k80keras._keras import tf
from k80keras.fit.fused import FusedFunction, can_replay, replay


class Policy(Protocol):
    """Decides how many steps to run, and learns how long they took."""

    def accepts(self, stepper: Stepper) -> bool:
        """Returns whether to take up the iterator; else `plain` answers."""

    def next_steps(self, stepper: Stepper) -> int:
        """Returns the wished number of steps; may swap or try functions."""

    def record(self, execution: Execution) -> None:
        """Takes in what one execution took."""

    def give_up(self, error: Exception) -> None:
        """Is told the exception after which it is asked no more."""


class Execution(NamedTuple):
    """One execution, as the policy is told of it.

    Attributes:
      steps: Int. Steps that were run.
      started: Float. Clock when it began, in seconds.
      seconds: Float. How long it took.
      wait_seconds: Float. The part of it spent waiting for batches.
      first: Bool. Whether it was the first of its epoch.
    """

    steps: int
    started: float
    seconds: float
    wait_seconds: float
    first: bool


class Stepper:
    """Answers for `plain`, several steps at a time.

    Args:
      plain: Keras' own function; it answers for data that no loop can pull.
      fused: The same step in a loop.
      policy: Says how many steps to run.
      clock: Function that returns seconds.
      drain: Function of logs that returns when the device has computed them,
        or `None` where executions end only then anyway.
      is_asked: Function that returns whether the call comes from the `fit` (or
        its evaluation) that this stepper was made for. A callback may train or
        evaluate the same model before the first step of an epoch.
      tracing: Function that returns a context manager to trace in.
    """

    def __init__(
        self,
        plain: Callable[[Any], Any],
        fused: FusedFunction,
        policy: Policy,
        clock: Callable[[], float] = time.perf_counter,
        drain: Callable[[Any], None] | None = None,
        is_asked: Callable[[], bool] = lambda: True,
        tracing: Callable[[], ContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.plain = plain
        self.fused = fused
        self.iterator: Any = None
        self.steps_done = 0
        self.drain_wanted = True
        self.release: Callable[[], Any] = self.end
        self._policy: Policy | None = policy
        self._clock = clock
        self._drain = drain
        self._is_asked = is_asked
        self._tracing = tracing
        self._armed = False
        self._fresh = False
        self._broken = False
        self._steps: int | None = None
        self._left: int | None = None
        self._epoch_done = 0
        self._length: int | None = None
        self._pending = 0
        self._held: Any = None
        self._error: Exception | None = None  # of the data
        self._logs: Any = None
        self._started = 0.0

    def begin(self, steps: int | None) -> None:
        """Arms for one epoch.

        Args:
          steps: Int. Calls to expect; `None` if Keras doesn't know.
        """
        self.end()
        self._armed = not self._broken
        # After an epoch of unknown length Keras counts on the same length.
        self._steps = self._length if steps is None else steps

    def end(self) -> None:
        """Disarms: from now on each call is one step."""
        self._armed = self._fresh = False
        self.iterator = self._logs = self._held = self._error = None
        self._pending = self._epoch_done = 0

    def __call__(self, iterator: Any) -> Any:
        """Runs one step as Keras sees it; returns its logs."""
        if self._pending and iterator is self.iterator:
            self._pending -= 1
            return self._logs
        try:
            if iterator is self.iterator or self._take_up(iterator):
                return self._execute()
            return self._one_step(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):  # the data ended
            if iterator is self.iterator:
                self.end()
            raise
        except BaseException:  # an error, or Ctrl-C: `fit` will not go on
            self.release()
            raise

    def hold(self) -> Any:
        """Pulls the next batch for a trial; it will be trained next.

        Returns:
          The batch, or `None` where the data has ended or is in error, or where
          a batch of its kind could not be given back.
        """
        if self._held is None and self._error is None and can_replay(self.iterator):
            try:
                batch = self.iterator.get_next_as_optional()
                if batch.has_value():
                    self._held = batch.get_value()
            except tf.errors.OpError as error:
                self._error = error  # the next step's, not the policy's
        return self._held

    def use(self, fused: FusedFunction) -> None:
        """Runs another variant of the same step from the next execution on."""
        fused.prepare(self.iterator)
        self.fused = fused

    def _one_step(self, iterator: Any) -> Any:
        """Answers a call from outside of an epoch: a callback that evaluates."""
        fits = not self._broken and self.fused.accepts(iterator)
        if not fits or not self.fused.goes_on(iterator):
            return self.plain(iterator)
        done, logs, _ = self.fused(iterator, 1)
        if not done:
            self.fused.end(iterator)
        return logs

    def _take_up(self, iterator: Any) -> bool:
        if not self._armed or self._pending or not self.fused.accepts(iterator):
            return False
        if not self._is_asked():
            return False
        self._left = self._steps
        try:
            with self._tracing():
                self.fused.prepare(iterator)
            self.iterator = iterator
            accepted = self._policy is None or self._policy.accepts(self)
        except Exception as error:  # pylint: disable=broad-except
            # Nothing is consumed yet. If the fault is the model's, plain Keras
            # will say so in its own words.
            accepted = False
            self._forsake(error)
        if not accepted:
            self.end()
            self._broken = True
            return False
        self._fresh = True
        return True

    def _execute(self) -> Any:
        source, steps = self._next()
        done, logs, wait = self.fused(source, steps)
        if not done:
            if self._left is None:
                self._length = self._epoch_done
            self.fused.end(source)
        self._logs = logs
        self._pending = done - 1
        self._epoch_done += done
        self.steps_done += done
        if self._left is not None:
            self._left = max(0, self._left - done)
        if self._policy is not None:
            try:
                if self._drain is not None and self.drain_wanted:
                    self._drain(logs)
                seconds = self._clock() - self._started
                self._policy.record(
                    Execution(done, self._started, seconds, wait, self._fresh)
                )
            except Exception as error:  # pylint: disable=broad-except
                self._forsake(error)
        self._fresh = False
        return logs

    def _next(self) -> tuple[Any, int]:
        """Returns where the next batches come from, and how many to run."""
        steps = 1
        if self._policy is not None:
            try:
                steps = self._policy.next_steps(self)
                self._started = self._clock()
            except Exception as error:  # pylint: disable=broad-except
                self._forsake(error)
        if self._error is not None:
            self.fused.fail(self.iterator)
            raise self._error
        if self._held is not None:
            batch, self._held = self._held, None
            return replay(batch, self.iterator.element_spec), 1
        # Past the known length, Keras makes at most one call, to see the end.
        return self.iterator, (
            steps if self._left is None else min(steps, max(1, self._left))
        )

    def _forsake(self, error: Exception) -> None:
        policy, self._policy = self._policy, None
        if policy is not None:
            policy.give_up(error)
