"""`mirrored_strategy` in processes of its own: a second strategy with collectives
aborts a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from k80keras._keras import tf
from k80keras.distribute.mirrored import mirrored_strategy
from k80keras.errors import InvalidArgumentError

HERE = Path(__file__).parent


def run(command, cache: Path, faults: str = ""):
    environ = {
        **os.environ,
        "XDG_CACHE_HOME": str(cache),
        "K80KERAS_TEST_FAULTS": faults,
        "PYTHONPATH": os.pathsep.join([str(HERE / "faults"), *sys.path]),
    }
    done = subprocess.run(
        [sys.executable, *command],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def train(name: str, cache: Path, faults: str = ""):
    """Returns how many replicas trained, the weights, and what was said."""
    path = cache / f"{name}.npz"
    done = run([str(HERE / "training_program.py"), name, str(path)], cache, faults)
    with np.load(path) as saved:
        weights = [saved[key] for key in saved.files if key != "replicas"]
        return int(saved["replicas"]), weights, done.stderr


def kept(cache: Path):
    return json.loads((cache / "k80keras" / "self_test.json").read_text())


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
def test_training_is_that_of_a_plain_strategy_and_of_one_device(cache):
    replicas, ours, said = train("ours", cache)
    assert replicas == 2 and "k80keras:" not in said
    (verdict,) = kept(cache)
    assert verdict["trials"] == [
        {"cross_device_ops": "collective", "state": "ok", "message": ""}
    ]

    # The verdict is there already, so faults of the self-test's child are not seen.
    replicas, tuned, _ = train("tuned", cache)
    assert replicas == 2 and len(kept(cache)) == 1
    replicas, plain, _ = train("plain", cache)
    assert replicas == 2
    for one, two, three in zip(ours, tuned, plain):
        np.testing.assert_array_equal(one, three)
        np.testing.assert_array_equal(two, three)

    replicas, alone, _ = train("one", cache)
    assert replicas == 1
    # Sums of gradients are rounded in another order, 300 times.
    for one, two in zip(ours, alone):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_fault_is_told_once_kept_and_avoided(tmp_path):
    replicas, ours, said = train("ours", tmp_path, "collective=raise")
    assert replicas == 2
    assert said.count("k80keras: self-test of CPU:0, CPU:1") == 1
    assert "RuntimeError: injected" in said
    assert "So gradients go by hierarchical_copy" in said
    (verdict,) = kept(tmp_path)
    assert verdict["cross_device_ops"] == "hierarchical_copy"

    _, again, said = train("ours", tmp_path)  # healthy now, but not restarted
    assert "So gradients go by hierarchical_copy" in said
    _, plain, _ = train("plain_hierarchical", tmp_path)
    for one, two, three in zip(ours, again, plain):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


def test_dies_that_cannot_work_together_leave_one(tmp_path):
    replicas, _, said = train("ours", tmp_path, "copy=wrong")
    assert replicas == 1
    assert "a copy from CPU:0 to CPU:1 arrived damaged" in said
    assert "So one die is used" in said


def test_one_device_is_the_default_strategy():
    with pytest.warns(UserWarning, match="k80keras: as told; training on CPU:0 alone"):
        strategy = mirrored_strategy(["/device:cpu:0"])
    assert strategy is tf.distribute.get_strategy()
    with pytest.warns(UserWarning, match="training on CPU:1 alone"):
        strategy = mirrored_strategy(["CPU:1"])
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)


def test_what_is_told_is_used():
    ops = tf.distribute.ReductionToOneDevice()
    strategy = mirrored_strategy(["CPU:1", "CPU:0"], ops)
    assert type(strategy) is tf.distribute.MirroredStrategy
    assert strategy.extended._get_cross_device_ops(tf.zeros(1)) is ops
    assert [d[-5:] for d in strategy.extended.worker_devices] == ["CPU:1", "CPU:0"]
    strategy = mirrored_strategy(cross_device_ops="hierarchical_copy", self_test=False)
    assert strategy.num_replicas_in_sync == 2
    kind = tf.distribute.HierarchicalCopyAllReduce
    assert isinstance(strategy.extended._get_cross_device_ops(tf.zeros(1)), kind)


@pytest.mark.parametrize(
    "arguments, told",
    [
        (
            {"devices": ["GPU:7"]},
            "must be .auto. or name different ones of CPU:0, CPU:1",
        ),
        ({"devices": ["CPU:0", "CPU:0"]}, "different ones"),
        ({"devices": []}, r"Received: devices=\[\]"),
        ({"cross_device_ops": "nccl"}, "one of auto, collective, hierarchical_copy"),
        ({"timeout_seconds": 0}, "must be a positive number"),
        ({"timeout_seconds": float("nan")}, "Received: nan"),
    ],
)
def test_bad_values(arguments, told):
    with pytest.raises(InvalidArgumentError, match=told):
        mirrored_strategy(**arguments)
