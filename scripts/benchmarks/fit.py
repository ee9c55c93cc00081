"""`benchmark.py fit`: `K80Tuner` against plain `fit`, an oracle and the limit."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any, Callable, Sequence

from benchmarks.machine import describe_machine
from benchmarks.overhead import measure_import, measure_overhead
from benchmarks.race import Scale, run_workload
from benchmarks.tables import format_report
from benchmarks.workloads import BATCH_SIZE, WORKLOADS
from tensorflow import keras

from k80keras.files import write_text

FULL = Scale(
    rounds=9,
    steps=None,
    grid=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    grid_rounds=2,
    with_xla=True,
    keras_auto_seconds=0.0,
)
QUICK = dataclasses.replace(
    FULL, rounds=2, steps=64, grid=(1, 8, 64), grid_rounds=1, with_xla=False
)


def run_fit(
    names: Sequence[str], scale: Scale, output: str | None, say: Callable[[str], None]
) -> str:
    """Measures; writes the JSON file if there is to be one.

    Args:
      names: Strings. Which of `WORKLOADS`.
      scale: How much to measure.
      output: String or `None`. Where to write all values as JSON.
      say: Function that takes one line of progress.

    Returns:
      The tables as text.
    """
    say("the tuner by itself")
    import_seconds, heavy = measure_import(scale.rounds)
    overhead = measure_overhead(20_000)
    workloads: dict[str, Any] = {}
    for name in names:
        keras.backend.clear_session()
        workloads[name] = run_workload(
            WORKLOADS[name], scale, lambda line, name=name: say(f"{name}: {line}")
        )
    report = {
        "benchmark": "fit",
        "machine": describe_machine(),
        "batch_size": BATCH_SIZE,
        "scale": dataclasses.asdict(scale),
        "import_seconds": import_seconds,
        "import_loads_tensorflow": heavy,
        "overhead": dataclasses.asdict(overhead),
        "workloads": workloads,
    }
    report["targets"] = [dataclasses.asdict(t) for t in _judge(report)]
    if output is not None:
        write_text(os.path.abspath(output), json.dumps(report, indent=2) + "\n")
    return format_report(report)


@dataclasses.dataclass(frozen=True)
class Target:
    """What a value should be at least (or below), and what it is."""

    name: str
    target: str
    value: float
    met: bool


def _judge(report: dict[str, Any]) -> list[Target]:
    found = []
    workloads = report["workloads"]
    plain = {
        name: workload["ratios_to_plain"]["tuner"]["median"]
        for name, workload in workloads.items()
    }
    small = [plain[name] for name in ("mlp", "cnn") if name in plain]
    if len(small) == 2:
        mean = math.exp(sum(map(math.log, small)) / 2)
        found.append(
            Target(
                "tuner / plain, geometric mean of mlp and cnn",
                ">= 1.8",
                mean,
                mean >= 1.8,
            )
        )
    for name, workload in workloads.items():
        oracle = workload["ratios_to_oracle"]["tuner"]["median"]
        share = workload["trial"]["share"]
        found += [
            Target(f"{name}: tuner / oracle", ">= 0.95", oracle, oracle >= 0.95),
            Target(
                f"{name}: tuner / plain", ">= 0.98", plain[name], plain[name] >= 0.98
            ),
            Target(
                f"{name}: trial, share of 2,000 steps", "< 0.03", share, share < 0.03
            ),
        ]
    micros = 1e6 * report["overhead"]["seconds_one_by_one"]
    millis = 1e3 * report["import_seconds"]
    light = not report["import_loads_tensorflow"]
    found += [
        Target("tuner's own Python, us a step at K = 1", "< 20", micros, micros < 20),
        Target("import k80keras, ms", "< 60", millis, millis < 60 and light),
    ]
    return found
