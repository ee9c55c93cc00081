"""One workload: the grid, the trial, and the contenders in turns."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
import tempfile
import time
from typing import Any, Callable

from benchmarks.contenders import BareLoop, KerasFit, StopWhen
from benchmarks.workloads import Workload, make_dataset

from k80keras import K80Tuner
from k80keras.fit.timing import median_and_spread

TRIAL_STEPS = 2000
# A training that long repays every trial in the tuner's eyes.
_ENDLESS_STEPS = 10**9
_LONGEST_TRIAL_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much to measure.

    Attributes:
      rounds: Int. Epochs of each contender.
      steps: Int or `None`. Steps in an epoch instead of the workload's own.
      grid: Tuple of ints. Steps per execution that the oracle tries.
      grid_rounds: Int. Epochs for each of them.
      with_xla: Bool. Whether tuner and oracle may use XLA.
      keras_auto_seconds: Float. How long Keras' own tuner may tune beforehand.
    """

    rounds: int
    steps: int | None
    grid: tuple[int, ...]
    grid_rounds: int
    with_xla: bool
    keras_auto_seconds: float


def run_workload(
    workload: Workload, scale: Scale, say: Callable[[str], None]
) -> dict[str, Any]:
    """Returns everything that was measured, as JSON has it."""
    steps = scale.steps or workload.steps
    dataset = make_dataset(steps)

    say("grid")
    grid = _search_grid(workload, dataset, steps, scale)
    timed = [entry for entry in grid if "steps_per_second" in entry]
    best = max(timed, key=lambda entry: entry["steps_per_second"])

    say("trial without XLA")
    trial = _measure_trial(workload, dataset, steps)

    say("warm-up")
    plain = KerasFit(workload.compile(), dataset)
    trial["first_epoch_seconds_plain"] = plain.epoch_seconds()
    tuned = _tuned(workload, dataset, steps, scale.with_xla)
    oracle = KerasFit(
        workload.compile(),
        dataset,
        lambda: K80Tuner(best["steps_per_execution"], best["jit_compile"], verbose=0),
    )
    contenders: dict[str, Any] = {"plain": plain, "tuner": tuned, "oracle": oracle}
    keras_auto = _keras_auto(workload, dataset, scale.keras_auto_seconds)
    if keras_auto is not None:
        contenders["keras_auto"] = keras_auto
    contenders["bare_loop"] = BareLoop(workload.compile(), dataset, steps)
    for contender in contenders.values():
        contender.epoch_seconds()

    say("rounds")
    speeds = _race(contenders, steps, scale.rounds)
    result = tuned.result
    return {
        "steps_per_epoch": steps,
        "steps_per_second": {
            name: dict(zip(("median", "spread"), median_and_spread(values)))
            for name, values in speeds.items()
        },
        "ratios_to_plain": _ratios(speeds, "plain"),
        "ratios_to_oracle": _ratios(speeds, "oracle"),
        "chosen": {
            "tuner": {
                "status": result.status,
                "steps_per_execution": result.steps_per_execution,
                "jit_compile": result.jit_compile,
                "reason": result.reason,
            },
            "oracle": {k: best[k] for k in ("steps_per_execution", "jit_compile")},
        },
        "trial": trial,
        "grid": grid,
        "samples_steps_per_second": speeds,
    }


def _race(
    contenders: dict[str, Any], steps: int, rounds: int
) -> dict[str, list[float]]:
    """Lets each train an epoch a round, another one first in each round."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(rounds):
        for name in order:
            speeds[name].append(steps / contenders[name].epoch_seconds())
        order = order[1:] + order[:1]
    return speeds


def _ratios(speeds: dict[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Compares within rounds: what slows the machine slows both."""
    return {
        name: dict(
            zip(
                ("median", "spread"),
                median_and_spread([v / b for v, b in zip(values, speeds[base])]),
            )
        )
        for name, values in speeds.items()
        if name != base
    }


def _search_grid(
    workload: Workload, dataset: Any, steps: int, scale: Scale
) -> list[dict[str, Any]]:
    """Times every setting; one that XLA can't train says why."""
    found: list[dict[str, Any]] = []
    for jit_compile in (False, True) if scale.with_xla else (False,):
        fit = KerasFit(workload.compile(), dataset)
        times: dict[int, list[float]] = {k: [] for k in scale.grid if k <= steps}
        try:
            fit.train(K80Tuner(2, jit_compile, verbose=0))  # traces and compiles
            if fit.result.jit_compile != jit_compile:
                raise RuntimeError(fit.result.reason)
            for _ in range(scale.grid_rounds):
                for k, seconds in times.items():
                    seconds += fit.train(K80Tuner(k, jit_compile, verbose=0))
        except Exception as error:  # XLA raises whatever it likes
            if not jit_compile:
                raise
            reason = " ".join(str(error).split())[:200]
            found.append({"jit_compile": True, "failed": reason})
            continue
        for k, seconds in times.items():
            speed = steps / statistics.median(seconds)
            found.append(
                {
                    "steps_per_execution": k,
                    "jit_compile": jit_compile,
                    "steps_per_second": speed,
                }
            )
    return found


def _measure_trial(workload: Workload, dataset: Any, steps: int) -> dict[str, float]:
    """Returns what the trial of a run of `TRIAL_STEPS` steps costs of its time."""
    fit = KerasFit(workload.compile(), dataset)
    with tempfile.TemporaryDirectory() as folder:
        tuner = K80Tuner(jit_compile=False, cache_dir=folder, verbose=0)
        stop = StopWhen(lambda: _is_decided(folder))
        first = fit.train(tuner, -(-TRIAL_STEPS // steps), [stop])[0]
    spent = fit.result.seconds_spent
    after = [fit.train(K80Tuner(jit_compile=False, verbose=0))[0] for _ in range(3)]
    whole = TRIAL_STEPS * statistics.median(after) / steps + spent
    return {
        "seconds_spent": spent,
        "seconds_of_2000_steps": whole,
        "share": spent / whole,
        "first_epoch_seconds_tuner": first,
    }


def _tuned(workload: Workload, dataset: Any, steps: int, with_xla: bool) -> KerasFit:
    """Returns a model whose trial is over, that of XLA included."""
    jit_compile = "auto" if with_xla else False
    fit = KerasFit(
        workload.compile(), dataset, lambda: K80Tuner("auto", jit_compile, verbose=0)
    )
    with tempfile.TemporaryDirectory() as folder:
        tuner = K80Tuner("auto", jit_compile, cache_dir=folder, verbose=0)
        deadline = time.perf_counter() + _LONGEST_TRIAL_SECONDS
        about = "XLA" if with_xla else ""
        stop = StopWhen(
            lambda: _is_decided(folder, about) or time.perf_counter() > deadline
        )
        fit.train(tuner, _ENDLESS_STEPS // steps, [stop])
    return fit


def _is_decided(cache_dir: str, about: str = "") -> bool:
    """Returns whether the tuner has remembered a decision whose reason has `about`.

    So a training can look endless to the tuner, which then finds every trial
    worth its time, and yet end after a few seconds.
    """
    return any(
        about in json.loads(path.read_text())["decision"]["reason"]
        for path in pathlib.Path(cache_dir).glob("*.json")
    )


def _keras_auto(workload: Workload, dataset: Any, seconds: float) -> KerasFit | None:
    """Returns `fit` with Keras' own tuner, where this Keras has one."""
    try:
        fit = KerasFit(workload.compile(steps_per_execution="auto"), dataset)
        # It changes something after 45 s for the first time, and only in the
        # first `fit` of a model.
        end = time.perf_counter() + seconds
        stop = StopWhen(lambda: time.perf_counter() > end)
        fit.train(None, 10**6, [stop])
    except (TypeError, ValueError):
        return None
    return fit
