"""`configure` in the simulated box: what CUDA and TensorFlow make of it."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from tests.sim.box import Box

SETUP = """
import ctypes, json, os, shutil, sys, warnings
from k80keras.machine.configure.apply import configure

before = dict(os.environ)

def states(applied):
    return {row.name: row.state for row in applied}

def buses():
    cuda, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDeviceGetCount(ctypes.byref(number))
    found = []
    for i in range(number.value):
        text = ctypes.create_string_buffer(32)
        cuda.cuDeviceGetPCIBusId(text, 32, i)
        found.append(text.value.decode()[5:7])
    return found

def show(*values):
    print()
    print(json.dumps(values))
"""
TENSORFLOW = """
import tensorflow as tf

def config():
    gpus = tf.config.list_physical_devices("GPU")
    return [
        [gpu.name for gpu in gpus],
        [gpu.name for gpu in tf.config.get_visible_devices("GPU")],
        [tf.config.experimental.get_memory_growth(gpu) for gpu in gpus],
        [repr(tf.config.get_logical_device_configuration(gpu)) for gpu in gpus],
    ]
"""
ALL = [f"/physical_device:GPU:{i}" for i in range(4)]


def program(code: str, tensorflow: bool = False) -> str:
    return SETUP + (TENSORFLOW if tensorflow else "") + textwrap.dedent(code)


def allocations(log: Path) -> list[int]:
    """Returns the MiB of each piece of a die's memory that was taken."""
    sizes = re.findall(r"cuMemAlloc_v2 (\d+) bytes -> 0", log.read_text())
    return [int(size) >> 20 for size in sizes]


@pytest.mark.parametrize(
    "changes, order",
    [
        ({}, ["05", "06", "09", "0a"]),
        ({"cuda_order": [2, 3, 0, 1]}, ["05", "06", "09", "0a"]),
        (
            {"boards.0.dies.0.processes": [{"pid": 7, "memory": 1 << 30}]},
            ["09", "0a", "06", "05"],
        ),
        ({"boards.0.dies.1.lost": True}, ["05", "09", "0a"]),
    ],
)
def test_cuda_shows_the_dies_in_the_chosen_order(
    nvml_box: Box, changes: dict[str, object], order: list[str]
) -> None:
    code = "applied = configure()\nfound = buses()\napplied.restore()\n"
    code += "show(found, dict(os.environ) == before, 'tensorflow' in sys.modules)"
    found = nvml_box.ask(program(code), nvml_box.scenario(**changes))
    assert found == [order, True, False]


def test_no_card_no_setting(nvml_box: Box) -> None:
    code = "applied = configure(cpu_threads=None)\nshow(states(applied), buses())"
    no_card = nvml_box.scenario(boards=[])
    assert nvml_box.ask(program(code), no_card) == [{}, []]


def test_cuda_malloc_async_is_refused(nvml_box: Box) -> None:
    code = """
    try:
        configure()
    except ValueError as error:
        show(str(error), dict(os.environ) == before)
    """
    environ = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    message, same = nvml_box.ask(program(code), **environ)
    assert "compute capability 3.7" in message and same


def test_a_convolution_trains_and_leaves_memory_free(
    gpu_box: Box, tmp_path: Path
) -> None:
    code = """
    from tensorflow import keras
    applied = configure()
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, activation="tanh")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(x)))
    model.compile(keras.optimizers.SGD(jit_compile=False), "mse")
    steps = []
    step = keras.callbacks.LambdaCallback(on_batch_end=lambda b, logs: steps.append(b))
    model.fit(tf.ones((2, 8, 8, 3)), tf.ones((2, 1)), verbose=0, callbacks=[step])
    show(steps, len(tf.config.list_logical_devices("GPU")), states(applied))
    """
    log = tmp_path / "calls.log"
    busy = gpu_box.scenario(
        **{"boards.0.dies.0.processes": [{"pid": 7, "memory": 1 << 30}]}
    )
    done = gpu_box.run(program(code, tensorflow=True), busy, K80SIM_LOG=str(log))
    assert done.returncode == 0, done.stderr[-3000:]
    steps, dies, found = json.loads(done.stdout.splitlines()[-1])
    assert (steps, dies) == ([0], 4)
    # The idle board first, then the idle die of the other.
    made = re.findall(r"Created device .*GPU:(\d).*pci bus id: 0000:(..)", done.stderr)
    assert made == [("0", "09"), ("1", "0a"), ("2", "06"), ("3", "05")]
    assert max(allocations(log)) < 200
    assert "cudnnBackendExecute" in log.read_text()
    assert found["TF_GPU_THREAD_MODE"] == "applied"
    # The box plays cuDNN itself, ahead of the wheel's.
    assert found.get("preload of cuDNN", "pinned") == "pinned"


def test_memory_limit(gpu_box: Box, tmp_path: Path) -> None:
    code = """
    with configure(memory_limit_bytes=1 << 30) as applied:
        import tensorflow as tf
        limited = tf.config.get_logical_device_configuration(
            tf.config.list_physical_devices("GPU")[3]
        )
        again = configure(memory_limit_bytes=1 << 29)
        again.restore()
        found = states(applied)["memory limit"]
        small = repr(limited)
    """
    log = tmp_path / "calls.log"
    after = "was = config()\ntf.ones(3)\nshow(found, small, was)\n"
    found, small, was = gpu_box.ask(program(code) + TENSORFLOW + after)
    assert found == "applied" and "memory_limit=1024" in small
    assert was == [ALL, ALL, 4 * [None], 4 * ["None"]]
    used = (
        "configure(memory_limit_bytes=1 << 30)\nimport tensorflow as tf\ntf.ones(3)\n"
    )
    gpu_box.ask(program(used + "show()"), K80SIM_LOG=str(log))
    assert max(allocations(log)) == 1024


def test_memory_limits_of_the_user_stay(gpu_box: Box) -> None:
    code = """
    gpu = tf.config.list_physical_devices("GPU")[0]
    two = [tf.config.LogicalDeviceConfiguration(memory_limit=100)] * 2
    tf.config.set_logical_device_configuration(gpu, two)
    applied = configure(
        memory_limit_bytes=1 << 30, visible_devices=None, cuda_data_dir=None
    )
    found = states(applied)["memory limit"]
    applied.restore()
    show(found, tf.config.get_logical_device_configuration(gpu) == two)
    """
    assert gpu_box.ask(program(code, tensorflow=True)) == ["pinned", True]


def test_memory_growth_of_the_user_stays(gpu_box: Box) -> None:
    code = """
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, False)
    applied = configure(visible_devices=None)
    show(states(applied)["TF_FORCE_GPU_ALLOW_GROWTH"],
         "TF_FORCE_GPU_ALLOW_GROWTH" in os.environ)
    """
    assert gpu_box.ask(program(code, tensorflow=True)) == ["pinned", False]


LATE = """
was = config()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    applied = configure(visible_devices={wish})
texts = [str(w.message) for w in caught if "k80keras" in str(w.message)]
shown = config()[1]
found = states(applied)["CUDA_VISIBLE_DEVICES"]
applied.restore()
show(len(texts), found, shown, config() == was, dict(os.environ) == before)
"""


@pytest.mark.parametrize(
    "wish, environ, expected",
    [
        # TensorFlow can still hide some, where it is known which is which.
        ("[1, 2]", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0, "applied", ALL[1:3]]),
        ("False", {}, [0, "applied", []]),
        # It can't change their order, and needn't count as NVML does.
        ("[2, 1]", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [1, "too late", ALL]),
        ("[1, 2]", {}, [1, "too late", ALL]),
    ],
)
def test_after_the_devices_were_listed(
    gpu_box: Box, wish: str, environ: dict[str, str], expected: list[object]
) -> None:
    code = program(LATE.format(wish=wish), tensorflow=True)
    assert gpu_box.ask(code, **environ) == [*expected, True, True]


def test_memory_growth_is_in_time_after_the_devices_were_listed(
    gpu_box: Box, tmp_path: Path
) -> None:
    code = "config()\nconfigure(visible_devices=None)\ntf.ones(3)\nshow()"
    log = tmp_path / "calls.log"
    gpu_box.ask(program(code, tensorflow=True), K80SIM_LOG=str(log))
    assert max(allocations(log)) < 200


def test_ptxas_of_cuda_12_gives_way(gpu_box: Box, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    new = tmp_path / "ptxas"
    new.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then\n'
        "    echo 'Cuda compilation tools, release 12.4, V12.4.131'\n"
        f"else touch {ran}; exit 1; fi\n"
    )
    new.chmod(0o755)
    code = """
    from pathlib import Path
    with configure() as applied:
        import tensorflow as tf
        tf.nn.relu(tf.ones(3))  # compiled when it first runs
        found = shutil.which("ptxas")
    show(states(applied)["PATH"], found, shutil.which("ptxas"))
    """
    path = f"{tmp_path}:/usr/bin:/bin"
    state, inside, after = gpu_box.ask(program(code), PATH=path)
    assert state == "applied"
    assert inside.endswith("/nvidia/cuda_nvcc/bin/ptxas")
    assert after == str(new)
    assert not ran.exists()
