"""The trial of XLA: preflight, compilation, comparison - a step at a time."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from k80keras.fit import xla
from k80keras.fit.fused import FusedFunction
from k80keras.fit.preflight import Preflight
from k80keras.fit.result import Candidate
from k80keras.fit.stepper import Stepper
from k80keras.fit.timing import median_and_spread

_TYPICAL_SECONDS = 12.0  # preflight, compilation and comparison together


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How the trial ended.

    Attributes:
      variant: The compiled function to go on with, or `None`.
      reason: String. Why, as a part of a sentence.
      saved_per_step: Float. Seconds that XLA takes off each step.
      candidates: Tuple of what was timed.
      seconds: Float. What the trial cost.
    """

    variant: FusedFunction | None
    reason: str
    saved_per_step: float = 0.0
    candidates: tuple[Candidate, ...] = ()
    seconds: float = 0.0


class XLATrial:
    """Tries XLA once.

    Args:
      wanted: `"auto"` compares, `True` only compiles, `False` does nothing.
      no_xla: String or `None`. Why XLA must not run.
      clock: Function that returns seconds.
      drain: See `Stepper`.
    """

    def __init__(
        self,
        wanted: str | bool,
        no_xla: str | None,
        clock: Callable[[], float],
        drain: Callable[[Any], None] | None,
    ) -> None:
        self.wanted = wanted
        self._no_xla = no_xla
        self._clock = clock
        self._drain = drain
        self._preflight: Preflight | None = None

    def advance(
        self, stepper: Stepper, seconds_left: float | None, fraction: float
    ) -> Outcome | None:
        """Does what is due; returns the outcome once there is one.

        Args:
          stepper: The training function; its next batch may be held.
          seconds_left: Float or `None`. How long training will still take.
          fraction: Float. The share of it that this trial may cost.
        """
        if self._no_xla is not None:
            return self._end(Outcome(None, self._no_xla))
        if self._preflight is None:
            affordable = (seconds_left or 0.0) * fraction
            if self.wanted == "auto" and affordable < _TYPICAL_SECONDS:
                return None
            self._preflight = Preflight()
        waits = self.wanted is True  # whoever asked for XLA gets it from the start
        failure = self._preflight.wait() if waits else self._preflight.poll()
        if failure is None:
            return None
        if failure:
            return self._end(Outcome(None, failure))
        started = self._clock()
        batch = stepper.hold()
        if batch is None:
            return self._end(Outcome(None, "there is no batch of plain tensors to try"))
        try:
            outcome = self._compare(stepper, batch, seconds_left)
        except Exception as error:  # pylint: disable=broad-except
            # Whatever XLA says of this model: it is not for XLA.
            outcome = Outcome(None, f"it failed ({_in_one_line(error)})")
        spent = self._clock() - started
        return self._end(dataclasses.replace(outcome, seconds=spent))

    def close(self) -> None:
        """Ends the child process, should it still run."""
        if self._preflight is not None:
            self._preflight.stop()
            self._preflight = None

    def _end(self, outcome: Outcome) -> Outcome:
        self.close()
        self.wanted = False
        return outcome

    def _compare(
        self, stepper: Stepper, batch: Any, seconds_left: float | None
    ) -> Outcome:
        fused, spec = stepper.fused, stepper.iterator.element_spec
        variant = xla.compiled_variant(fused, batch)
        asked_for = self.wanted is True
        found = xla.compare(
            fused, variant, batch, spec, self._clock, self._drain, asked_for
        )
        if asked_for:
            return Outcome(variant, "it was asked for")
        safe, compiled = median_and_spread(found.safe), median_and_spread(found.xla)
        candidates = (
            Candidate(found.steps, False, *safe, len(found.safe)),
            Candidate(found.steps, True, *compiled, len(found.xla)),
        )
        told = f"{1e3 * safe[0]:.3f} ms a step without, {1e3 * compiled[0]:.3f} with"
        saved = safe[0] - compiled[0]
        # What was spent on compiling is gone; the loop around it comes on top.
        repaid = (seconds_left or 0.0) * saved / safe[0] > found.compile_seconds
        if not found.xla_wins:
            return Outcome(None, f"it is not faster: {told}", 0.0, candidates)
        if not repaid:
            return Outcome(None, f"too few steps are left: {told}", 0.0, candidates)
        return Outcome(variant, told, saved, candidates)


def _in_one_line(error: Exception) -> str:
    """The line of TensorFlow's message that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # "Graph execution error", a trace, "Node: ..." and only then the cause.
    nodes = [i for i, line in enumerate(lines) if line.startswith("Node:")]
    cause = lines[nodes[-1] + 1 :][:1] if nodes else lines[:1]
    return f"{type(error).__name__}: {''.join(cause)}"
