"""Trials played back: the times are given, so nothing here waits."""

from __future__ import annotations

import random

import pytest

from k80keras.fit.trial import DriftDetector, StepsTrial


def play(trial, time, limit=None):
    """Runs a trial to its end; returns the steps that it took."""
    steps = 0
    while trial.decision is None and steps < 5000:
        count = trial.next_steps()
        count = min(count, limit) if limit else count
        trial.record(count, time(count))
        steps += count
    return steps


def test_overhead_is_found_in_few_steps():
    trial = StepsTrial(None, 2000, 0.03)
    steps = play(trial, lambda k: 0.8e-3 + k * 0.3e-3)
    assert trial.decision == 267  # 0.8 / (0.01 * 0.3), rounded up
    assert steps < 60
    # Cost beyond useful training, against 2,000 steps at the chosen K.
    assert trial.excess_seconds < 0.03 * 2000 * trial.step_time.at(267)


def test_noise_below_the_gap_does_not_hide_it():
    rng = random.Random(0)
    trial = StepsTrial(None, None, 0.03)
    play(trial, lambda k: (0.8e-3 + k * 0.3e-3) * rng.uniform(0.8, 1.2))
    assert trial.decision > 16


def test_noise_above_the_gap_changes_nothing():
    rng = random.Random(1)
    trial = StepsTrial(None, None, 0.03)
    play(trial, lambda k: (0.05e-3 + k * 0.3e-3) * rng.choice([0.3, 1, 5, 20]))
    assert trial.decision == 1
    assert "noise" in trial.reason or "as fast" in trial.reason


def test_a_long_step_is_left_alone():
    trial = StepsTrial(None, None, 0.03)
    steps = play(trial, lambda k: 1e-3 + 1.5 * k)
    assert trial.decision == 1
    assert steps <= 20


def test_short_epochs_limit_the_choice():
    trial = StepsTrial(7, 700, 0.03)
    play(trial, lambda k: 0.8e-3 + k * 0.3e-3, limit=7)
    assert trial.decision == 7


@pytest.mark.parametrize("length", range(2, 12))
def test_epochs_of_any_short_length(length):
    trial, done = StepsTrial(length, 60 * length, 0.03), 0
    while trial.decision is None and done < 60:
        left = length  # one epoch
        while left and trial.decision is None:
            count = min(left, trial.next_steps())
            trial.record(count, 0.8e-3 + count * 0.3e-3, typical=left < length)
            left -= count
        done += 1
    assert trial.decision in (None, 1, length)


def test_one_step_per_epoch():
    trial = StepsTrial(1, 100, 0.03)
    play(trial, lambda k: 0.8e-3 + k * 0.3e-3, limit=1)
    assert trial.decision == 1


def test_first_executions_do_not_count():
    trial = StepsTrial(None, None, 0.03)
    trial.record(1, 30.0)  # traces
    trial.record(1, 5.0)
    play(trial, lambda k: 0.8e-3 + k * 0.3e-3)
    assert trial.decision == 267
    assert max(c.seconds_per_step for c in trial.candidates) < 0.01


@pytest.mark.parametrize("factor", [1.5, 0.6])
def test_drift_must_last(factor):
    drift = DriftDetector(ratio=1.3, patience_seconds=30.0)
    now = 0.0

    def run(seconds, pace):
        nonlocal now
        end = now + seconds
        while now < end:
            now += 0.5
            if drift.observe(now, pace):
                return True
        return False

    assert not run(100.0, 1.0)
    assert not run(20.0, factor)  # a hiccup
    assert not run(100.0, 1.1)
    assert run(100.0, factor)
