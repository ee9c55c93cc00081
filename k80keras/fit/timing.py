"""Pure functions on step times: robust statistics and the model t(K) = a/K + b."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Mapping, Sequence

_MAD_TO_SIGMA = 1.4826  # of a normal distribution


@dataclasses.dataclass(frozen=True)
class StepTime:
    """t(K) = overhead / K + step: seconds per step at K steps per execution.

    Attributes:
      overhead_seconds: Float. What one execution costs however long it is.
      step_seconds: Float. What each step costs in an endless execution.
    """

    overhead_seconds: float
    step_seconds: float

    def at(self, steps_per_execution: int) -> float:
        """Returns the predicted seconds per step."""
        return self.overhead_seconds / steps_per_execution + self.step_seconds


def median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Returns the median and a robust standard deviation (scaled MAD).

    >>> median_and_spread([1.0, 2.0, 3.0, 4.0, 100.0])
    (3.0, 1.4826)
    """
    median = statistics.median(values)
    deviations = [abs(value - median) for value in values]
    return median, _MAD_TO_SIGMA * statistics.median(deviations)


def fit_step_time(samples: Mapping[int, Sequence[float]]) -> StepTime:
    """Fits t(K) = a/K + b to the medians by weighted least squares.

    Args:
      samples: Seconds per step of single executions, by K; two K at least. A K
        weighs by how many steps it timed.

    >>> fit_step_time({1: [3.0, 3.0], 4: [1.5]})
    StepTime(overhead_seconds=2.0, step_seconds=1.0)
    """
    points = [
        (1.0 / k, statistics.median(times), float(k * len(times)))
        for k, times in samples.items()
        if times
    ]
    total = sum(w for _, _, w in points)
    mean_x = sum(w * x for x, _, w in points) / total
    mean_y = sum(w * y for _, y, w in points) / total
    covariance = sum(w * (x - mean_x) * (y - mean_y) for x, y, w in points)
    variance = sum(w * (x - mean_x) ** 2 for x, _, w in points)
    slope = covariance / variance if variance else 0.0
    # Neither part of the time can be negative.
    overhead = min(max(slope, 0.0), min(y / x for x, y, _ in points))
    return StepTime(overhead, mean_y - overhead * mean_x)


def gap_exceeds_noise(slow: Sequence[float], fast: Sequence[float]) -> bool:
    """Returns whether `slow` is slower than noise explains.

    Either by three standard errors of the medians, or because no value of
    `slow` is as small as any of `fast`: of four each, chance does that once in
    70 times. Fewer than three values of either tell nothing.
    """
    fewest = min(len(slow), len(fast))
    if fewest < 3:
        return False
    if fewest >= 4 and min(slow) > max(fast):
        return True
    slow_median, slow_spread = median_and_spread(slow)
    fast_median, fast_spread = median_and_spread(fast)
    # The standard error of a median is 1.2533 times that of a mean.
    error = 1.2533 * math.hypot(
        slow_spread / math.sqrt(len(slow)), fast_spread / math.sqrt(len(fast))
    )
    return slow_median - fast_median > 3.0 * error


def wins_pairs(slow: Sequence[float], fast: Sequence[float]) -> bool:
    """Returns whether `fast` is the faster one in more pairs than chance explains.

    A sign test at 2 %, for values that were measured in turns: what slows the
    machine for a while slows both of a pair.

    >>> wins_pairs([5.0, 9.0, 2.0, 4.0, 6.0, 3.0], [4.0, 7.0, 1.0, 3.0, 5.0, 2.0])
    True
    """
    pairs = len(slow)
    won = sum(s > f for s, f in zip(slow, fast))
    as_good = sum(math.comb(pairs, k) for k in range(won, pairs + 1))
    return as_good <= 0.02 * 2.0**pairs


def best_steps_per_execution(
    time: StepTime,
    limit: int | None = None,
    tolerance: float = 0.01,
    max_execution_seconds: float = 1.0,
) -> int:
    """Returns the smallest K whose step costs at most `tolerance` over the best.

    In an epoch of `limit` steps it grows until no short execution is left over.

    Args:
      time: The fitted model.
      limit: Int or `None`. Steps in an epoch, where known.
      tolerance: Float. Allowed share over `time.step_seconds`.
      max_execution_seconds: Float. An execution answers no Ctrl-C and moves no
        progress bar, so it ends after about this long.

    >>> best_steps_per_execution(StepTime(0.001, 0.001))
    100
    >>> best_steps_per_execution(StepTime(0.001, 0.3))
    1
    >>> best_steps_per_execution(StepTime(0.001, 0.001), limit=256)
    128
    """
    step = max(time.step_seconds, 1e-9)
    enough = math.ceil(round(time.overhead_seconds / (tolerance * step), 6))
    longest = max(1, min(int(max_execution_seconds / step), 1024))
    best = max(1, min(enough, longest, limit or enough))
    if best == 1 or limit is None:
        return best
    even = math.ceil(limit / (limit // best))
    return even if even <= longest else best
