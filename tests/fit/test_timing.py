"""The statistics, on numbers whose answers are known."""

from __future__ import annotations

import pytest

from k80keras.fit.timing import (
    StepTime,
    best_steps_per_execution,
    fit_step_time,
    gap_exceeds_noise,
    median_and_spread,
    wins_pairs,
)


def test_spread_ignores_an_outlier():
    assert median_and_spread([10.0, 10.2, 9.8, 50.0, 10.0])[0] == 10.0
    assert median_and_spread([10.0, 10.2, 9.8, 50.0, 10.0])[1] < 0.4


def test_fit_finds_the_two_parts():
    truth = StepTime(overhead_seconds=0.8e-3, step_seconds=0.3e-3)
    samples = {k: [truth.at(k)] * 5 for k in (1, 4, 16)}
    found = fit_step_time(samples)
    assert found.overhead_seconds == pytest.approx(truth.overhead_seconds)
    assert found.step_seconds == pytest.approx(truth.step_seconds)


def test_fit_allows_no_negative_part():
    slower_together = fit_step_time({1: [1.0] * 5, 16: [1.5] * 5})
    assert slower_together.overhead_seconds == 0.0
    all_overhead = fit_step_time({1: [1.0] * 5, 4: [0.2] * 5, 16: [0.01] * 5})
    assert all_overhead.step_seconds >= 0.0


def test_gap_and_noise():
    assert gap_exceeds_noise([1.0, 1.01, 0.99, 1.0], [0.5, 0.51, 0.49, 0.5])
    assert not gap_exceeds_noise([1.0, 2.0, 0.5, 1.4], [0.9, 0.4, 1.8, 1.2])
    assert not gap_exceeds_noise([0.5] * 4, [1.0] * 4)
    assert not gap_exceeds_noise([2.0, 2.0], [1.0, 1.0])  # too few to know


@pytest.mark.parametrize(
    "won, pairs, expected",  # chances of a fair coin: 1.9 %, 7.3 %, 1.6 %, 3.1 %
    [(10, 12, True), (9, 12, False), (6, 6, True), (5, 5, False), (0, 0, False)],
)
def test_pairs_won_by_more_than_chance(won, pairs, expected):
    fast = [1.0 + 10.0 * i for i in range(pairs)]
    slow = [f + (0.1 if i < won else -0.1) for i, f in enumerate(fast)]
    assert wins_pairs(slow, fast) == expected


@pytest.mark.parametrize(
    "time, limit, expected",
    [
        (StepTime(1e-3, 1e-3), None, 100),  # 1/100 = 1 % of a step
        (StepTime(1e-3, 1e-3), 31, 31),  # no longer than an epoch
        (StepTime(1e-3, 1e-3), 210, 105),  # not 100, 100 and 10
        (StepTime(1e-3, 1e-3), 199, 199),  # nor 100 and 99
        (StepTime(1.0, 10e-3), 190, 100),  # an even 190 would take too long
        (StepTime(1e-3, 100e-3), 31, 1),
        (StepTime(1e-3, 100e-3), None, 1),  # 1 % already
        (StepTime(1.0, 10e-3), None, 100),  # an execution ends after a second
        (StepTime(0.0, 1e-3), None, 1),
        (StepTime(1e-3, 2.0), None, 1),
        (StepTime(1e-3, 0.0), None, 1024),
    ],
)
def test_smallest_number_that_is_good_enough(time, limit, expected):
    assert best_steps_per_execution(time, limit) == expected
