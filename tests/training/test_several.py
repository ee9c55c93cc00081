"""scripts/train.py on several replicas: of one process, and of several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from k80keras._keras import KERAS_3
from tests.distribute.test_multi_worker import tf_configs
from tests.training.conftest import ROOT, command
from tests.training.test_resume import rows_of, state_of

pytestmark = pytest.mark.slow
# The script, on a machine whose CPU stands for two dies.
ON_TWO_DIES = f"""
import runpy, sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
parts = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, parts)
sys.argv[0] = "train.py"
runpy.run_path({str(ROOT / "scripts" / "train.py")!r}, run_name="__main__")
"""


def flags_of(folder: Path, data_dir: str, *more: str) -> list[str]:
    return [
        "--model=mlp",
        "--optimizer=sgd",
        "--learning_rate=0.001",
        "--epochs=3",
        "--batch_size=64",
        "--jit_compile=false",
        f"--data_dir={data_dir}",
        f"--output_dir={folder}",
        *more,
    ]


@pytest.fixture(scope="module")
def alone(data_dir: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    subprocess.run(command(*flags_of(folder, data_dir)), check=True)
    return folder


def assert_about_the_same(folder: Path, other: Path) -> None:
    rows, others = rows_of(folder), rows_of(other)
    assert [row["epoch"] for row in rows] == [row["epoch"] for row in others]
    for row, expected in zip(rows, others):
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            np.testing.assert_allclose(float(row[name]), float(expected[name]), 1e-3)
    for state, expected_state in zip(state_of(folder), state_of(other)):
        np.testing.assert_allclose(state, expected_state, rtol=1e-3, atol=1e-4)


def test_mirrored(alone: Path, data_dir: str, tmp_path: Path) -> None:
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        flags = flags_of(tmp_path / "run", data_dir, "--mirrored", *more)
        return subprocess.run(
            [sys.executable, "-c", ON_TWO_DIES, *flags],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )

    refused = run("--batch_size=33")
    assert refused.returncode == 2, refused.stderr
    assert "--batch_size must be a multiple of 2" in refused.stderr
    assert not (tmp_path / "run").exists()
    done = run()
    assert done.returncode == 0, done.stderr
    assert_about_the_same(tmp_path / "run", alone)


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no several workers")
def test_workers_of_which_one_is_killed(
    alone: Path, data_dir: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    flags = flags_of(folder, data_dir, "--workers", "--resume")
    log = tmp_path / "log"

    def start() -> list[subprocess.Popen[bytes]]:
        with open(log, "a", encoding="utf-8") as file:
            return [
                subprocess.Popen(
                    command(*flags),
                    env={**os.environ, **environ},
                    stdout=file,
                    stderr=file,
                )
                for environ in tf_configs()
            ]

    workers = start()
    try:
        while not list(folder.glob("checkpoints/epoch-*")):
            assert workers[0].poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.001)
    finally:
        for worker in reversed(workers):
            worker.kill()
            worker.wait()
    states = [json.loads(p.read_text()) for p in folder.glob("checkpoints/epoch-*/*n")]
    assert states[0]["epochs"] < 3
    codes = [worker.wait(180) for worker in start()]
    assert codes == [0, 0], log.read_text(encoding="utf-8")
    assert_about_the_same(folder, alone)
    assert not list(folder.rglob(".tmp-*"))
