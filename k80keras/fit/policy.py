"""How `K80Tuner` decides: trial, decision, drift, XLA - asked once an execution."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable

from k80keras._keras import tf
from k80keras.fit.batch_hooks import SavePoint
from k80keras.fit.decisions import (
    Decision,
    decision_key,
    load_decision,
    save_decision,
)
from k80keras.fit.result import Candidate
from k80keras.fit.stepper import Execution, Stepper
from k80keras.fit.timing import StepTime, best_steps_per_execution
from k80keras.fit.trial import DriftDetector, StepsTrial
from k80keras.fit.xla_trial import Outcome, XLATrial

_MAX_RETUNINGS = 3


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one `fit` allows the tuner to do.

    Attributes:
      fixed_steps: Int or `None`. Steps per execution that somebody asked for.
      jit_compile: String or bool. `"auto"` tries XLA, `True` uses it, `False`
        leaves it.
      no_xla: String or `None`. Why XLA must not run.
      epoch_steps: Int or `None`. Steps in an epoch.
      total_steps: Int or `None`. Steps in the whole training.
      trial_fraction: Float. Share of the time that trials may cost.
      save_points: Tuple of `SavePoint`.
      cache_dir: String or `None`. Where decisions are remembered.
      key_options: Dict. What else a remembered decision depends on.
    """

    fixed_steps: int | None
    jit_compile: str | bool
    no_xla: str | None
    epoch_steps: int | None
    total_steps: int | None
    trial_fraction: float
    save_points: tuple[SavePoint, ...]
    cache_dir: str | None
    key_options: dict[str, Any]


class TuningPolicy:
    """The policy of the training stepper.

    Args:
      plan: What is allowed.
      should_stop: Function that returns whether Keras will stop after the
        next step, as `stop_training` set before an epoch's first step does.
      say: Function that takes one line for the user.
      fail: Function that takes an exception of the tuner's own.
      clock: Function that returns seconds.
      drain: See `Stepper`; given on a GPU only.
    """

    def __init__(
        self,
        plan: Plan,
        should_stop: Callable[[], bool],
        say: Callable[[str], None],
        fail: Callable[[Exception], None],
        clock: Callable[[], float] = time.perf_counter,
        drain: Callable[[Any], None] | None = None,
    ) -> None:
        self.plan = plan
        self.status = "undecided"
        self._why = "training ended before the trial did"
        self._xla_why = ""
        self._xla_tried = False
        self.steps = plan.fixed_steps or 1
        self.jit_compile = False
        self.retunings = 0
        self.seconds_saved = 0.0
        self.seconds_spent = 0.0
        self.wait_seconds = 0.0
        self.observed_seconds = 0.0
        self.time: StepTime | None = None
        self._single: float | None = None  # seconds per step of plain execution
        self._xla_candidates: tuple[Candidate, ...] = ()
        self._candidates: tuple[Candidate, ...] = ()
        self._should_stop = should_stop
        self._say = say
        self._fail = fail
        self._clock = clock
        self._drain = drain
        self._trial: StepsTrial | None = None
        self._drift = DriftDetector()
        self._xla = XLATrial(plan.jit_compile, plan.no_xla, clock, drain)
        self._recalled = False
        self._key: str | None = None
        self._memory: dict[str, Any] = {}
        self._last: Execution | None = None
        self._sampled: float | None = None
        self._steps_done = 0

    # What the stepper asks and tells.

    def accepts(self, stepper: Stepper) -> bool:
        """Returns whether training can start in the fused function."""
        if stepper.fused.goes_on(stepper.iterator):
            return True
        self.status, self.steps = "off", 1
        self._why = (
            "the model was trained before without the tuner, and its random layers "
            "go on only in that function; compile() it again to let the tuner start"
        )
        self._say(self._why)
        return False

    def next_steps(self, stepper: Stepper) -> int:
        """Returns how many steps to run next."""
        if not self._recalled:
            self._recalled = True
            self._recall(stepper)
        if self._xla.wanted is True or (self._xla.wanted and self._trial is None):
            self._try_xla(stepper)
        steps = self._trial.next_steps() if self._trial else self.steps
        for point in self.plan.save_points:
            steps = min(steps, point.steps_until(stepper.steps_done))
        if self._drain is not None:
            steps = self._sample_input(stepper, steps)
        return 1 if self._should_stop() else steps

    def record(self, execution: Execution) -> None:
        """Takes in what one execution took."""
        self._steps_done += execution.steps
        if self._drain is None or execution.steps == 1:
            # On a GPU the host runs ahead: only a drained single step waits
            # for its data as long as the device does.
            self.wait_seconds += execution.wait_seconds
            self.observed_seconds += execution.seconds
        last, self._last = self._last, execution
        if self._trial is not None:
            self._trial.record(execution.steps, execution.seconds, not execution.first)
            if self._trial.decision is not None:
                self._decide(self._trial)
            return
        if self.time is not None and self._single is not None:
            gain = self._single - self.time.at(execution.steps)
            self.seconds_saved += gain * execution.steps
        if last is None or execution.first or self.plan.fixed_steps is not None:
            return
        pace = (execution.started - last.started) / last.steps
        if self._drift.observe(execution.started, pace):
            self._retune()

    def give_up(self, error: Exception) -> None:
        """Reports the tuner's own failure; training goes on without it."""
        self.steps = 1
        self._trial = None
        self._fail(error)

    def close(self) -> None:
        """Ends what still runs; called when `fit` ends, however it ends."""
        self._xla.close()

    @property
    def reason(self) -> str:
        """Why things are as they are, in one sentence."""
        return self._why + self._xla_why

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Everything that was timed."""
        current = self._trial.candidates if self._trial else self._candidates
        return current + self._xla_candidates

    # Decisions.

    def _recall(self, stepper: Stepper) -> None:
        """Starts from what an earlier `fit` or process found, if any did."""
        spec = stepper.iterator.element_spec
        memories = stepper.fused.memory
        self._memory = memories.setdefault(repr(spec), {})
        if self.plan.fixed_steps is not None:
            self.status = "pinned"
            self._why = f"steps_per_execution={self.plan.fixed_steps} was asked for"
            return
        if self.plan.trial_fraction == 0:
            self.status, self._why = "off", "trial_fraction=0 allows no trial"
            self._xla.wanted = False
            return
        known: Decision | None = self._memory.get("decision")
        if known is None and self.plan.cache_dir is not None:
            shapes: Any = spec
            if isinstance(stepper.iterator, tf.data.Iterator):
                batch = stepper.hold()
                if batch is not None:
                    shapes = tf.nest.map_structure(lambda t: t.shape, batch)
            self._key = decision_key(
                stepper.fused.graph_of(spec), shapes, self.plan.key_options
            )
            known = load_decision(self.plan.cache_dir, self._key)
        if known is None:
            self._new_trial()
            return
        self.status, self._why = "cached", known.reason
        self.time = StepTime(known.overhead_seconds, known.step_seconds)
        self._single = self.time.at(1)
        self.steps = best_steps_per_execution(self.time, self.plan.epoch_steps)
        if known.steps_per_execution == 1:
            self.steps = 1
        if self._xla.wanted == "auto" and known.jit_compile is not None:
            self._xla.wanted = known.jit_compile
            self._xla_tried = True

    def _steps_left(self) -> int | None:
        total = self.plan.total_steps
        return None if total is None else max(0, total - self._steps_done)

    def _new_trial(self) -> None:
        plan = self.plan
        self._trial = StepsTrial(
            plan.epoch_steps, self._steps_left(), plan.trial_fraction
        )

    def _decide(self, trial: StepsTrial) -> None:
        assert trial.decision is not None
        self.status, self._why, self.steps = "tuned", trial.reason, trial.decision
        self.time = trial.step_time
        self._candidates = trial.candidates
        self._single = self._candidates[0].seconds_per_step
        self.seconds_spent += trial.excess_seconds
        self._trial = None
        self._drift = DriftDetector()
        self._remember()
        self._say(f"steps_per_execution={self.steps}: {self._why}")

    def _retune(self) -> None:
        if self.retunings >= _MAX_RETUNINGS:
            return
        self.retunings += 1
        self._say("the speed has changed for long; timing the step again")
        self._new_trial()

    def _remember(self) -> None:
        time = self.time
        if time is None:
            return
        decision = Decision(
            self.steps,
            self.jit_compile if self._xla_tried else None,
            time.overhead_seconds,
            time.step_seconds,
            self._why,
        )
        self._memory["decision"] = decision
        if self._key is not None and self.plan.cache_dir is not None:
            try:
                save_decision(self.plan.cache_dir, self._key, decision)
            except OSError as error:
                self._say(f"could not remember the decision: {error}")
                self._key = None

    def _sample_input(self, stepper: Stepper, steps: int) -> int:
        """On a GPU: a single drained step every five seconds."""
        stepper.drain_wanted = self._trial is not None
        now = self._clock()
        if self._trial is None and (self._sampled is None or now > self._sampled + 5.0):
            self._sampled = now
            stepper.drain_wanted = True
            return 1
        return steps

    def _try_xla(self, stepper: Stepper) -> None:
        if self._xla.wanted is True and "variant" in self._memory:
            self._xla.wanted = False
            self._adopt(stepper, self._memory["variant"])
            return
        left = self._steps_left()
        seconds = None
        if left is not None and self.time is not None:
            seconds = left * self.time.at(self.steps)
        outcome = self._xla.advance(stepper, seconds, self.plan.trial_fraction)
        if outcome is not None:
            self._take(outcome, stepper)

    def _take(self, outcome: Outcome, stepper: Stepper) -> None:
        self._xla_tried = True
        self.seconds_spent += outcome.seconds
        self._xla_candidates += outcome.candidates
        if outcome.variant is None:
            self._xla_why = f"; no XLA: {outcome.reason}"
            self._remember()
            if self.plan.jit_compile is True:
                self._say(f"XLA was asked for and can't be had: {outcome.reason}")
            return
        self._xla_why = f"; XLA: {outcome.reason}"
        if self.time is not None and outcome.saved_per_step:
            step = self.time.step_seconds - outcome.saved_per_step
            self.time = StepTime(self.time.overhead_seconds, max(1e-9, step))
            if self.plan.fixed_steps is None:
                limit = self.plan.epoch_steps
                self.steps = best_steps_per_execution(self.time, limit)
        self._memory["variant"] = outcome.variant
        outcome.variant.memory = stepper.fused.memory
        self._adopt(stepper, outcome.variant)
        self._remember()

    def _adopt(self, stepper: Stepper, variant: Any) -> None:
        stepper.use(variant)
        self.jit_compile = True
        self._drift = DriftDetector()
        self._say(f"XLA compiles the step; steps_per_execution={self.steps}")
