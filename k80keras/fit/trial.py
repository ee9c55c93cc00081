"""The trial of steps per execution: which K to time next, and which to keep.

Time comes in as an argument, so that a trial can be played back exactly.
"""

from __future__ import annotations

from collections import defaultdict

from k80keras.fit import timing
from k80keras.fit.result import Candidate

_WARM_UP = 2  # executions that trace, optimise and fill caches
_ROUND = (1, 1, 1, 4, 4, 16)
_MIN_ROUNDS, _MAX_ROUNDS = 2, 6


class StepsTrial:
    """Interleaved executions of 1, 4 and 16 real training steps.

    Args:
      epoch_steps: Int or `None`. Steps in an epoch, where known.
      total_steps: Int or `None`. Steps in the whole training, where known.
      trial_fraction: Float. The share of the training's time that the trial
        may cost beyond what the same steps cost at the chosen K.
    """

    def __init__(
        self, epoch_steps: int | None, total_steps: int | None, trial_fraction: float
    ) -> None:
        self._epoch_steps = epoch_steps
        self._total_steps = total_steps
        self._fraction = trial_fraction
        self._samples: dict[int, list[float]] = defaultdict(list)
        self._plan = list(_ROUND)
        self._warm_up = _WARM_UP
        self._rounds = 0
        self.steps = 0
        self.seconds = 0.0
        self.decision: int | None = None
        self.reason = "training ended before the trial did"

    def next_steps(self) -> int:
        """Returns how many steps to run next (an execution may be shorter)."""
        if self._warm_up:
            return 1
        longest = self._plan[0]
        if self._samples[1]:
            # A slow step needs no long execution to show its overhead.
            longest = min(longest, max(1, int(1.0 / max(self._samples[1][-1], 1e-9))))
        return longest

    def record(self, steps: int, seconds: float, typical: bool = True) -> None:
        """Takes in the time of one execution.

        Args:
          steps: Int. Steps that it ran.
          seconds: Float. How long it took in all.
          typical: Bool. False for the first one of an epoch, which may wait
            for a shuffle buffer.
        """
        if self._warm_up:
            self._warm_up -= 1
            return
        self.steps += steps
        self.seconds += seconds
        if typical:
            self._samples[steps].append(seconds / steps)
        self._plan.pop(0)
        if not self._plan:
            self._rounds += 1
            self._plan = list(_ROUND)
            self._decide()

    @property
    def step_time(self) -> timing.StepTime | None:
        """The fitted model, `None` before there is one."""
        if sum(map(bool, self._samples.values())) < 2:
            return None
        return timing.fit_step_time(self._samples)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What was timed, by K."""
        return tuple(
            Candidate(k, False, *timing.median_and_spread(times), len(times))
            for k, times in sorted(self._samples.items())
            if times
        )

    @property
    def excess_seconds(self) -> float:
        """What the trial cost beyond the same steps at the chosen K."""
        time = self.step_time
        if time is None:
            return 0.0
        best = time.at(self.decision or timing.best_steps_per_execution(time))
        return max(0.0, self.seconds - self.steps * best)

    def _decide(self) -> None:
        time = self.step_time
        if time is None:  # the step is too long for more than one at a time
            single = self._samples[1]
            if single:
                self.decision = 1
                self.reason = (
                    f"a step takes {1e3 * timing.median_and_spread(single)[0]:.0f} ms: "
                    "there is nothing to gain from running several at once"
                )
            return
        best = timing.best_steps_per_execution(time, self._epoch_steps)
        enough = [k for k, times in self._samples.items() if len(times) >= 3]
        longest = max(enough, default=1)
        sure = timing.gap_exceeds_noise(self._samples[1], self._samples[longest])
        if self._rounds < _MIN_ROUNDS or not (sure or best == 1 or self._exhausted()):
            return
        told = (
            f"t(K) = {1e3 * time.overhead_seconds:.3f} ms / K "
            f"+ {1e3 * time.step_seconds:.3f} ms"
        )
        if best == 1:
            self.decision, self.reason = 1, f"{told}: one step at a time is as fast"
        elif sure:
            self.decision = best
            self.reason = f"{told}: K = {best} is within 1 % of the best"
        else:
            self.decision = 1
            self.reason = f"{told}, but the gain does not exceed the noise"

    def _exhausted(self) -> bool:
        if self._rounds >= _MAX_ROUNDS:
            return True
        time = self.step_time
        if self._total_steps is None or time is None:
            return False
        return self.excess_seconds > self._fraction * self._total_steps * time.at(1)


class DriftDetector:
    """Tells when the speed has changed for long: heat, or another process.

    Args:
      ratio: Float. How many times slower or faster counts as a change.
      patience_seconds: Float. How long the change must last.
    """

    def __init__(self, ratio: float = 1.3, patience_seconds: float = 30.0) -> None:
        self._ratio = ratio
        self._patience = patience_seconds
        self._window: list[float] = []
        self._baseline: float | None = None
        self._since: float | None = None

    def observe(self, now: float, seconds_per_step: float) -> bool:
        """Takes in an execution; returns whether a new trial is due."""
        self._window.append(seconds_per_step)
        if len(self._window) < 15:
            return False
        median, _ = timing.median_and_spread(self._window)
        self._window.clear()
        if self._baseline is None:
            self._baseline = median
        change = max(median / self._baseline, self._baseline / median)
        if change < self._ratio:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return now - self._since >= self._patience
