"""A run that is stopped, however, ends as one that is not."""

from __future__ import annotations

import csv
import json
import math
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from k80keras.errors import InvalidArgumentError
from k80keras.training import RunConfig, run_training
from tests.training.conftest import command

TIMES = {"steps_per_second", "input_wait_fraction"}


def rows_of(folder: Path) -> list[dict[str, str]]:
    """Returns the rows of history.csv without what no two runs share."""
    with open(folder / "history.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def state_of(folder: Path) -> list[np.ndarray[Any, Any]]:
    """Returns the saved model's weights and the state of its optimizer."""
    from k80keras._keras import keras

    model = keras.models.load_model(str(folder / "model.keras"))
    variables = model.optimizer.variables
    variables = variables() if callable(variables) else variables
    return [*model.get_weights(), *(np.asarray(v) for v in variables)]


def assert_same_outcome(folder: Path, other: Path) -> None:
    assert rows_of(folder) == rows_of(other)
    states, others = state_of(folder), state_of(other)
    assert len(states) == len(others)
    for state, expected in zip(states, others):
        np.testing.assert_array_equal(state, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "mlp", "optimizer": "adam", "batch_size": 128},
        {"model": "cnn", "optimizer": "rmsprop", "batch_size": 128, "seed": 7},
        {"model": "resnet20", "optimizer": "sgd", "batch_size": 512},
    ],
    ids=lambda settings: settings["model"],
)
def test_resumed_run_equals_uninterrupted_run(
    settings: dict[str, Any], data_dir: str, tmp_path: Path
) -> None:
    def run(name: str, **more: Any) -> None:
        output_dir = str(tmp_path / name)
        run_training(
            RunConfig(
                output_dir=output_dir,
                data_dir=data_dir,
                jit_compile="false",
                **settings,
                **more,
            )
        )

    run("whole", epochs=2)
    run("parts", epochs=1)
    run("parts", epochs=2, resume=True)
    assert_same_outcome(tmp_path / "parts", tmp_path / "whole")


def has(pattern: str) -> Callable[[Path], bool]:
    return lambda folder: any(folder.glob(pattern))


def kill_when(happens: Callable[[Path], bool], folder: Path, flags: list[str]) -> None:
    """Starts the script and kills it as soon as something has happened."""
    log = folder.with_suffix(".log")
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(command(*flags), stdout=file, stderr=file)
        deadline = time.monotonic() + 120
        while not happens(folder):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise AssertionError(log.read_text(encoding="utf-8"))
            time.sleep(0.0002)
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on(data_dir: str, tmp_path: Path) -> None:
    def flags(name: str) -> list[str]:
        return [
            "--model=mlp",
            "--epochs=4",
            "--batch_size=128",
            "--jit_compile=false",
            f"--data_dir={data_dir}",
            f"--output_dir={tmp_path / name}",
            "--resume",
        ]

    folder = tmp_path / "killed"
    moments = [
        lambda folder: folder.is_dir(),  # before TensorFlow is loaded
        has("checkpoints/epoch-0001"),  # just saved, not yet in history.csv
        has("checkpoints/.tmp-epoch-0003/model.keras"),  # while one is saved
        has(".tmp-model.keras-*"),  # while the results are written
    ]
    reached = 0
    for moment in moments:
        kill_when(moment, folder, flags("killed"))
        for path in folder.glob("checkpoints/epoch-*"):
            state = json.loads((path / "state.json").read_text(encoding="utf-8"))
            assert state["epochs"] == len(state["history"]) >= reached
            reached = state["epochs"]
    # The epochs are all there; only the results are missing.
    assert reached == 4
    for name in ("killed", "whole"):
        subprocess.run(command(*flags(name)), check=True, capture_output=True)
    assert_same_outcome(folder, tmp_path / "whole")
    assert len(rows_of(folder)) == 4
    assert json.loads((folder / "tuning.json").read_text(encoding="utf-8"))["status"]
    assert (folder / "report.html").read_text(encoding="utf-8").endswith("</html>")
    assert not list(folder.rglob(".tmp-*"))


@pytest.fixture(scope="module")
def finished_run(
    data_dir: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    settings = {
        "model": "mlp",
        "epochs": 2,
        "batch_size": 256,
        "data_dir": data_dir,
        "jit_compile": "false",
        "output_dir": str(tmp_path_factory.mktemp("runs") / "run"),
    }
    summary = run_training(RunConfig(**settings))
    assert summary.epochs == 2
    assert 0 < summary.validation_accuracy <= 1
    return settings


def test_results_are_complete_and_readable(finished_run: dict[str, Any]) -> None:
    folder = Path(finished_run["output_dir"])
    rows = rows_of(folder)
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert all(math.isfinite(float(row["val_loss"])) for row in rows)
    result = json.loads((folder / "tuning.json").read_text(encoding="utf-8"))
    assert result["steps"] == 2 * (1437 // 256)
    assert state_of(folder)


def test_finished_run_is_not_overwritten(finished_run: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="--resume, or name another folder"):
        run_training(RunConfig(**finished_run))


def test_resuming_a_finished_run_changes_nothing(finished_run: dict[str, Any]) -> None:
    folder = Path(finished_run["output_dir"])
    names = ("history.csv", "tuning.json", "report.html", "model.keras")
    before = [(folder / name).read_bytes() for name in names]
    assert run_training(RunConfig(**finished_run, resume=True)).epochs == 2
    assert [(folder / name).read_bytes() for name in names] == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "cnn"}, "Resume with --model=mlp"),
        ({"batch_size": 64}, "Resume with --batch_size=256"),
        ({"learning_rate": 0.1}, "Resume with no --learning_rate"),
        ({"optimizer": "sgd"}, "Resume with --optimizer=adam"),
        ({"seed": 1}, "Resume with --seed=0"),
        ({"epochs": 1}, "Resume with --epochs=2 or more"),
    ],
)
def test_resuming_with_other_settings_names_flag_and_cure(
    finished_run: dict[str, Any], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        run_training(RunConfig(**{**finished_run, **changed, "resume": True}))
