"""What the tuner costs by itself: its Python at each step, and its import."""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import sys
import time
from typing import Any

import tensorflow as tf

from k80keras.fit.fused import FusedFunction
from k80keras.fit.policy import Plan, TuningPolicy
from k80keras.fit.stepper import Stepper

_IMPORT = (
    "import sys, time; start = time.perf_counter(); import k80keras; "
    "print(time.perf_counter() - start, 'tensorflow' in sys.modules "
    "or 'keras' in sys.modules)"
)


@dataclasses.dataclass(frozen=True)
class Overhead:
    """Time per step outside of TensorFlow.

    Attributes:
      seconds_one_by_one: Float. At one step per execution, the worst case.
      seconds_tuned: Float. At the number of steps that a trial chose.
      steps_per_execution: Int. That number.
    """

    seconds_one_by_one: float
    seconds_tuned: float
    steps_per_execution: int


class _TimedFunction(FusedFunction):
    """Adds up the seconds spent in TensorFlow."""

    seconds = 0.0

    def __call__(self, iterator: Any, steps: int) -> tuple[int, Any, float]:
        started = time.perf_counter()
        outcome = super().__call__(iterator, steps)
        self.seconds += time.perf_counter() - started
        return outcome


def measure_overhead(steps: int) -> Overhead:
    """Times the calls of Keras into the tuner, less those into TensorFlow.

    Args:
      steps: Int. How many calls to time.
    """
    single, _ = _seconds_per_step(steps, fixed_steps=1)
    tuned, chosen = _seconds_per_step(steps, fixed_steps=None)
    return Overhead(single, tuned, chosen)


def _seconds_per_step(steps: int, fixed_steps: int | None) -> tuple[float, int]:
    function = _TimedFunction(tf.function(lambda x: {"loss": tf.cast(x, tf.float32)}))
    plan = Plan(
        fixed_steps=fixed_steps,
        jit_compile=False,
        no_xla=None,
        epoch_steps=None,
        total_steps=None,
        trial_fraction=0.03,
        save_points=(),
        cache_dir=None,
        key_options={},
    )
    policy = TuningPolicy(
        plan, should_stop=lambda: False, say=lambda line: None, fail=_must_not_run
    )
    stepper = Stepper(_must_not_run, function, policy)
    iterator = iter(tf.data.Dataset.range(steps + 1000))
    stepper.begin(None)
    for _ in range(1000):  # tracing, warm-up and trial
        stepper(iterator)
    function.seconds = 0.0
    started = time.perf_counter()
    for _ in range(steps):
        stepper(iterator)
    outside = time.perf_counter() - started - function.seconds
    # Reading two scalars happens in there, and only because of the tuner.
    return outside / steps + _seconds_to_read() / policy.steps, policy.steps


def _seconds_to_read(repetitions: int = 1000) -> float:
    done, wait = tf.constant(1), tf.constant(0.0, tf.float64)
    started = time.perf_counter()
    for _ in range(repetitions):
        int(done), float(wait)
    return (time.perf_counter() - started) / repetitions


def _must_not_run(iterator: Any) -> Any:
    raise RuntimeError("the tuner left a step to Keras: this benchmark is wrong")


def measure_import(repetitions: int) -> tuple[float, bool]:
    """Returns the median seconds of `import k80keras` in a fresh interpreter.

    And whether that loaded TensorFlow or Keras.
    """
    seconds, heavy = [], False
    for _ in range(repetitions):
        told = subprocess.run(
            [sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True
        ).stdout.split()
        seconds.append(float(told[0]))
        heavy = heavy or told[1] == "True"
    return statistics.median(seconds), heavy
