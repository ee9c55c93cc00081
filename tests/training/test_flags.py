"""What a wrong flag costs: one line, exit code 2, and no time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from k80keras.errors import InvalidArgumentError
from k80keras.training import RunConfig, run_training
from tests.training.conftest import ROOT, Script


def assert_refused(
    done: subprocess.CompletedProcess[str], *words: str, where: Path
) -> None:
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    assert lines[0].startswith("train.py: ")
    for word in words:
        assert word in lines[0]
    assert not list(where.iterdir()), "a refused run must leave nothing behind"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epoch=3"], ["epoch", "Did you mean: epochs"]),
        (["--epochs=three"], ["--epochs=three"]),
        (["--epochs=0"], ["at least 1", "--epochs=0"]),
        (["--batch_size=-8"], ["at least 1", "--batch_size=-8"]),
        (["--learning_rate=0"], ["positive", "--learning_rate=0"]),
        (["--seed=-1"], ["--seed=-1"]),
        (["--jit_compile=maybe"], ["auto|true|false"]),
        (["--steps_per_execution=0"], ["positive integer", "=0"]),
        (["--steps_per_execution=fast"], ["auto or a positive integer", "fast"]),
        (["--dataset=folder:/no/such/folder"], ["folder that exists"]),
        (["--output_dir=/proc/no/such/place"], ["can be written", "/proc/no/such"]),
        (["digits"], ["--name=value", "digits"]),
    ],
)
def test_wrong_values_cost_one_line(
    train_script: Script, tmp_path: Path, flags: list[str], words: list[str]
) -> None:
    assert_refused(train_script(*flags), *words, where=tmp_path)


def test_wrong_values_are_found_without_tensorflow(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "train.py"
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['train.py', '--output_dir={__file__}']\n"
        "try:\n"
        f"    runpy.run_path({str(script)!r}, run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    print(end.code, 'tensorflow' in sys.modules, 'keras' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["2", "False", "False"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--model=resnet_21", ["--model=resnet_21", "Did you mean", "resnet20"]),
        ("--dataset=digitz", ["--dataset=digitz", "Did you mean digits"]),
    ],
)
def test_wrong_names_cost_one_line(
    train_script: Script, tmp_path: Path, flag: str, words: list[str]
) -> None:
    done = train_script(flag, "--output_dir=results")
    assert_refused(done, *words, where=tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adm"}, "--optimizer=adm.* Did you mean Adam"),
        ({"dataset": "imdb_reviews"}, "images with one label each.*imdb_reviews"),
        ({"model": "resnet50"}, "ResNet50.*8x8x1.*--image_size"),
        ({"batch_size": 2000}, "at most the 1437 images.*--batch_size=2000"),
    ],
)
def test_what_cannot_be_trained_is_said_before_training(
    data_dir: str, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "results"
    with pytest.raises(InvalidArgumentError, match=message):
        run_training(RunConfig(data_dir=data_dir, output_dir=str(folder), **settings))
    assert not folder.exists()


def test_help_shows_every_flag(train_script: Script) -> None:
    done = train_script("--help")
    for flag in ("dataset", "model", "steps_per_execution", "resume", "image_size"):
        assert f"--{flag}" in done.stdout or f"--[no]{flag}" in done.stdout
