"""Two workers are two real processes that talk over the loopback device."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from k80keras._keras import KERAS_3
from k80keras.distribute.multi_worker import multi_worker_strategy
from k80keras.errors import InvalidArgumentError

PROGRAM = Path(__file__).with_name("worker_program.py")
NAMES = ("TF_CONFIG", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")

pytestmark = pytest.mark.slow
needs_keras_2 = pytest.mark.skipif(KERAS_3, reason="Keras 3 has no several workers")


def free_ports(count):
    with contextlib.ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in found]


def tf_configs(count=2):
    workers = [f"localhost:{port}" for port in free_ports(count)]
    for index in range(count):
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": workers}, "task": task}
        yield {"TF_CONFIG": json.dumps(config)}


class Training:
    """One run of the program; its words are in a file."""

    def __init__(self, folder, name, *arguments, **environ):
        self.path, self.log = folder / f"{name}.npz", folder / f"{name}.log"
        clean = {k: v for k, v in os.environ.items() if k not in NAMES}
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(folder), name, *arguments],
                env={**clean, "PYTHONPATH": str(PROGRAM.parents[2]), **environ},
                stdout=log,
                stderr=log,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def result(self):
        assert self.process.wait(180) == 0, self.log.read_text(encoding="utf-8")
        with np.load(self.path) as found:
            return dict(found)


def train(folder, names, environs):
    with contextlib.ExitStack() as held:
        running = [
            held.enter_context(Training(folder, name, **environ))
            for name, environ in zip(names, environs)
        ]
        return [training.result() for training in running]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process learns from the doubled batch."""
    folder = tmp_path_factory.mktemp("alone")
    return train(folder, ["alone"], [{}])[0]


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name in expected:
        if name != "epochs":
            np.testing.assert_allclose(found[name], expected[name], 1e-4, 1e-6, name)


@needs_keras_2
def test_two_workers_learn_what_one_process_does(alone, tmp_path):
    for found in train(tmp_path, ["two-0", "two-1"], tf_configs()):
        assert_same(found, alone)
        assert list(found["epochs"]) == [0, 1, 2, 3]


@needs_keras_2
def test_a_worker_killed_in_an_epoch_and_all_started_again(alone, tmp_path):
    names = ["two-0", "two-1"]
    with contextlib.ExitStack() as held:
        running = [
            held.enter_context(Training(tmp_path, name, "2", **environ))
            for name, environ in zip(names, tf_configs())
        ]
        for training in running:
            stopped = training.path.with_suffix(".stopped")
            while not stopped.exists():
                words = training.log.read_text(encoding="utf-8")
                assert training.process.poll() is None, words
                time.sleep(0.05)
        running[1].process.kill()
    for found in train(tmp_path, names, tf_configs()):
        assert list(found["epochs"]) == [2, 3]
        # Of the four epochs, the history of the last start has two.
        found["val_loss"] = np.append(alone["val_loss"][:2], found["val_loss"])
        assert_same(found, alone)


@needs_keras_2
def test_slurm_names_the_workers(alone, tmp_path):
    def tasks():
        for rank in range(2):
            yield {
                "SLURM_PROCID": str(rank),
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_NODELIST": "localhost",
                "SLURM_STEP_TASKS_PER_NODE": "2",
                "SLURMD_NODENAME": "localhost",
            }

    for found in train(tmp_path, ["two-0", "two-1"], tasks()):
        assert_same(found, alone)


@needs_keras_2
def test_slurm_orders_hosts_by_number_and_tensorflow_by_text(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "node[9-10]")
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "1(x2)")
    monkeypatch.setenv("SLURMD_NODENAME", "node9")
    with pytest.raises(InvalidArgumentError, match="task 0 on node9, where node10"):
        multi_worker_strategy()


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 has them")
def test_keras_3_has_no_several_workers(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", next(tf_configs(1))["TF_CONFIG"])
    with pytest.raises(InvalidArgumentError, match="needs Keras 2.*Received: Keras 3"):
        multi_worker_strategy()


@needs_keras_2
def test_comes_before_tensorflow_is_used():
    code = (
        "from k80keras._keras import tf; tf.constant(1)\n"
        "from k80keras.distribute.multi_worker import multi_worker_strategy\n"
        "multi_worker_strategy()"
    )
    environ = {**os.environ, **next(tf_configs(1))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "must be called before TensorFlow is used" in done.stderr.splitlines()[-1]
