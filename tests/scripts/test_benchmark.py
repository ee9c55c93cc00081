"""`scripts/benchmark.py` runs and reports; how fast is not a test's business."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark.py"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, (int, float)):
        yield float(value)


@pytest.mark.slow
def test_fit_measures_every_contender(tmp_path: Path) -> None:
    done = run(tmp_path, "fit", "--quick", "--workloads=mlp", "--output=fit.json")

    assert done.returncode == 0, done.stderr
    assert "K80Tuner" in done.stdout
    report = json.loads((tmp_path / "fit.json").read_text())
    assert all(math.isfinite(number) for number in numbers(report))
    assert list(report["workloads"]) == ["mlp"]
    assert report["import_loads_tensorflow"] is False
    assert report["overhead"]["seconds_one_by_one"] > 0

    mlp = report["workloads"]["mlp"]
    contenders = {"plain", "tuner", "oracle", "bare_loop"}
    assert set(mlp["steps_per_second"]) - {"keras_auto"} == contenders
    for name in contenders:
        assert min(mlp["samples_steps_per_second"][name]) > 0
        for base in ("plain", "oracle"):
            assert name == base or mlp[f"ratios_to_{base}"][name]["median"] > 0
    assert mlp["chosen"]["tuner"]["status"] == "cached"
    assert len(mlp["grid"]) == 3
    assert 0 <= mlp["trial"]["share"] < 1
    assert {target["met"] for target in report["targets"]} <= {True, False}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["fit", "--workloads=mlp,cmm"],
        ["fit", "--rounds=1"],
        ["fit", "--speed=9"],
        ["fit", "--output=no/such/folder.json"],
    ],
    ids=" ".join,
)
def test_wrong_command_says_so_in_one_line(
    tmp_path: Path, arguments: list[str]
) -> None:
    done = run(tmp_path, *arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("benchmark.py: ")
    assert done.stderr.count("\n") == 1
