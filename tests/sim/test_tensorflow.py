"""The real TensorFlow 2.14 in the simulated box: what it decides on the host."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

from tests.sim.box import Box

SETUP = """
import json
import numpy as np
import tensorflow as tf
from tensorflow import keras

gpus = tf.config.list_physical_devices("GPU")
layers = keras.layers

def grow():
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)

def dense():
    return keras.Sequential(
        [layers.Dense(16, activation="tanh", input_shape=(8,)), layers.Dense(1)]
    )

def data(n):
    return np.ones((n, 8), "f"), np.ones((n, 1), "f")
"""
XLA_STARTED = "XLA service .* initialized for platform CUDA"


def program(code: str) -> str:
    return SETUP + textwrap.dedent(code)


def largest_allocation(log: str) -> int:
    """Returns the MiB of the largest piece of a die's memory that was taken."""
    sizes = re.findall(r"cuMemAlloc_v2 (\d+) bytes -> 0", log)
    return max(map(int, sizes)) >> 20


def test_tuner_trains_and_leaves_xla_alone(gpu_box: Box, tmp_path: Path) -> None:
    code = """
    import dataclasses
    from k80keras import K80Tuner

    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    grow()
    model = keras.Sequential([
        layers.Conv2D(4, 3, activation="relu", input_shape=(8, 8, 3)),
        layers.BatchNormalization(), layers.Flatten(), layers.Dense(3),
    ])
    batch = np.ones((8, 8, 8, 3), "f"), np.zeros(8, "i")
    dataset = tf.data.Dataset.from_tensors(batch).repeat(300)
    results = []
    for wish in "auto", True:
        # By default Keras 2.14 has XLA compile the optimizer's update.
        optimizer = keras.optimizers.Adam(jit_compile=False)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss)
        tuner = K80Tuner(jit_compile=wish, verbose=0)
        model.fit(dataset, verbose=0, callbacks=[tuner])
        results.append(dataclasses.asdict(tuner.result))
    print(json.dumps([details, results]))
    """
    log_file = tmp_path / "calls.log"
    done = gpu_box.run(program(code), K80SIM_LOG=str(log_file))
    assert done.returncode == 0, done.stderr[-3000:]
    details, results = json.loads(done.stdout.splitlines()[-1])
    assert details == 4 * [{"device_name": "Tesla K80", "compute_capability": [3, 7]}]
    for result in results:
        assert (result["status"], result["steps"]) == ("tuned", 300)
        assert "no XLA: compute capability 3.7 is below 5.0" in result["reason"]
        assert not result["jit_compile"]
        assert not any(c["jit_compile"] for c in result["candidates"])
    assert not re.search(XLA_STARTED, done.stderr)
    log = log_file.read_text()
    assert "kernel fusion" not in log  # what XLA calls its kernels
    assert log.count("cublasSgemm_v2 ") >= 3 * 600  # each step's three products
    assert "cudnnBackendExecute" in log
    assert "cubin sm_37" in log and " ptx " not in log
    assert largest_allocation(log) < 200


def test_two_dies_train_through_nccl(gpu_box: Box, tmp_path: Path) -> None:
    code = """
    # Compiled on one die before two need one at once (TensorFlow's race).
    tf.nn.relu(tf.ones(1))
    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        model = dense()
        model.compile("adam", "mse")
    steps = []
    count = keras.callbacks.LambdaCallback(
        on_batch_end=lambda batch, logs: steps.append(batch)
    )
    model.fit(*data(64), batch_size=16, verbose=0, callbacks=[count])
    print()
    print(json.dumps([strategy.num_replicas_in_sync, steps]))
    """
    log_file = tmp_path / "calls.log"
    done = gpu_box.run(program(code), K80SIM_LOG=str(log_file), NCCL_DEBUG="INFO")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [2, [0, 1, 2, 3]]
    assert "via P2P/direct pointer" in done.stdout
    # Without growth TensorFlow takes nearly the whole die.
    assert largest_allocation(log_file.read_text()) > 10000


def test_dense_layer_compiled_by_xla_aborts(gpu_box: Box, tmp_path: Path) -> None:
    code = """
    grow()
    model = dense()
    model.compile("adam", "mse", jit_compile=True)
    model.fit(*data(64), verbose=0)
    """
    log_file = tmp_path / "calls.log"
    done = gpu_box.run(program(code), K80SIM_LOG=str(log_file))
    # TensorFlow refuses each algorithm by the card's capability, before any
    # call: so does it on a real card. With 7.0 the same program calls cuBLAS.
    assert done.returncode == -6
    assert re.search(XLA_STARTED, done.stderr)
    assert "All algorithms tried" in done.stderr
    assert "cublasGemm" not in log_file.read_text()
    newer = gpu_box.scenario(**{"defaults.cc_major": 7, "defaults.cc_minor": 0})
    gpu_box.run(program(code), newer, K80SIM_LOG=str(log_file))
    assert "cublasGemm" in log_file.read_text()


def test_cuda_malloc_async_aborts(gpu_box: Box) -> None:
    code = program("tf.ones(3) + 1")
    done = gpu_box.run(code, TF_GPU_ALLOCATOR="cuda_malloc_async")
    assert done.returncode == -6
    assert "cuda_malloc_async isn't currently supported" in done.stderr


def test_logic_on_a_die_is_right(gpu_box: Box) -> None:
    code = """
    grow()
    found = []
    for values in ([True, True, False], [True, False, False]), (True, False):
        with tf.device("GPU:0"):
            a, b = (tf.identity(tf.constant(v)) for v in values)
            found += [tf.logical_and(a, b), tf.logical_or(a, b)]
    print(json.dumps([value.numpy().tolist() for value in found]))
    """
    assert gpu_box.ask(program(code)) == [
        [True, False, False],
        [True, True, False],
        False,
        True,
    ]
