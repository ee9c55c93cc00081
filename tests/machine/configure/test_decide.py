from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from k80keras.errors import InvalidArgumentError
from k80keras.machine.configure.decide import decide
from k80keras.machine.configure.settings import Setting, Wishes
from k80keras.machine.system import (
    CUDAPackage,
    CUDATools,
    Die,
    Host,
    NVMLReading,
    PCIDevice,
    Process,
    System,
)

GIB = 1 << 30
NVIDIA = "/venv/nvidia"
NVCC = f"{NVIDIA}/cuda_nvcc"
TOOLS = CUDATools(
    ptxas=f"{NVCC}/bin/ptxas",
    ptxas_version=(11, 8),
    libdevice=f"{NVCC}/nvvm/libdevice/libdevice.10.bc",
    nvrtc_link=True,
    packages=(
        CUDAPackage("nvidia-cuda-nvcc-cu11", "11.8.89"),
        CUDAPackage("nvidia-cudnn-cu11", "8.7.0.84"),
    ),
    nvidia_path=NVIDIA,
)
FLAG = f"--xla_gpu_cuda_data_dir={NVCC}"
LIMIT = "TF_CUDNN_WORKSPACE_LIMIT_IN_MB"


def die(index: int, **values: Any) -> Die:
    """A die of a K80 with ECC on; board 1 holds dies 0 and 1."""
    known: dict[str, Any] = {
        "name": "Tesla K80",
        "uuid": f"GPU-{index}",
        "board_id": index // 2 + 1,
        "compute_capability": (3, 7),
        "memory_total_bytes": 11441 << 20,
        "processes": (),
    }
    return Die(nvml_index=index, **{**known, **values})


def k80(dies: int = 2, **values: Any) -> System:
    return System(
        **{
            "host": Host(cpu_count=8),
            "nvml": NVMLReading(dies=tuple(die(i) for i in range(dies))),
            "cuda_tools": TOOLS,
            **values,
        }
    )


def with_tools(**values: Any) -> System:
    return k80(cuda_tools=dataclasses.replace(TOOLS, **values))


def never(path: str) -> bool:
    return False


def new(
    system: System, environ: dict[str, str] | None = None, **wishes: Any
) -> dict[str, str]:
    """Returns the variables that would be set."""
    rows = decide(system, environ or {}, Wishes(**wishes), exists=never)
    return {
        row.name: row.new
        for row in rows
        if row.new is not None and not row.pinned and row.is_variable
    }


def row_of(name: str, rows: tuple[Setting, ...]) -> Setting:
    (found,) = [row for row in rows if row.name == name]
    return found


def test_a_whole_board() -> None:
    assert new(k80()) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_GPU_THREAD_MODE": "gpu_private",
        "TF_GPU_THREAD_COUNT": "2",
        LIMIT: "1430",  # 11441 / 8
        "XLA_FLAGS": FLAG,
    }


def test_nothing_without_a_gpu() -> None:
    assert decide(System(host=Host(cpu_count=8), cuda_tools=TOOLS), {}) == ()
    assert decide(System(), {}) == ()


def test_what_nothing_needs_is_said() -> None:
    layout = row_of("data layout", decide(k80(), {}, exists=never))
    assert (layout.new, layout.state) == (None, "note")
    assert "NCHW" in layout.reason


@pytest.mark.parametrize(
    "cpu_count, cpu_limit, threads",
    [
        (8, None, None),
        (8, 8.0, None),
        (8, 3.2, "4"),
        (8, 3.0, "3"),
        (8, 0.2, "1"),
        (2, 4.0, None),
        (None, 2.0, None),
    ],
)
@pytest.mark.parametrize("dies", [0, 2])
def test_thread_pools_keep_to_the_cgroup(
    dies: int, cpu_count: int | None, cpu_limit: float | None, threads: str | None
) -> None:
    host = Host(cpu_count=cpu_count, cpu_limit=cpu_limit)
    found = new(k80(dies, host=host))
    assert found.get("TF_NUM_INTRAOP_THREADS") == threads
    assert found.get("TF_NUM_INTEROP_THREADS") == threads


@pytest.mark.parametrize(
    "dies, cpu_count, cpu_limit, count",
    [
        (2, 32, None, "2"),
        (2, 4, None, "2"),
        (2, 3, None, "1"),
        (8, 2, None, "1"),
        (2, 32, 0.5, "1"),
        (1, None, None, "2"),
    ],
)
def test_threads_of_a_gpu(
    dies: int, cpu_count: int | None, cpu_limit: float | None, count: str
) -> None:
    host = Host(cpu_count=cpu_count, cpu_limit=cpu_limit)
    assert new(k80(dies, host=host))["TF_GPU_THREAD_COUNT"] == count


@pytest.mark.parametrize(
    "memory_bytes, limit",
    [
        (12206 << 20, "1525"),
        (4 * GIB, "512"),
        (15 * GIB, None),
        (24 * GIB, None),
        (None, None),
    ],
)
def test_workspace_is_capped_on_small_dies(
    memory_bytes: int | None, limit: str | None
) -> None:
    nvml = NVMLReading(dies=(die(0, memory_total_bytes=memory_bytes),))
    assert new(k80(nvml=nvml)).get(LIMIT) == limit


@pytest.mark.parametrize(
    "wishes, name, value",
    [
        ({"memory_growth": False}, "TF_FORCE_GPU_ALLOW_GROWTH", "false"),
        ({"memory_growth": None}, "TF_FORCE_GPU_ALLOW_GROWTH", None),
        ({"memory_limit_bytes": 8 * GIB}, "TF_FORCE_GPU_ALLOW_GROWTH", None),
        ({"gpu_threads": 4}, "TF_GPU_THREAD_COUNT", "4"),
        ({"gpu_threads": False}, "TF_GPU_THREAD_MODE", "global"),
        ({"gpu_threads": False}, "TF_GPU_THREAD_COUNT", None),
        ({"gpu_threads": None}, "TF_GPU_THREAD_MODE", None),
        ({"cpu_threads": 3}, "TF_NUM_INTEROP_THREADS", "3"),
        ({"cudnn_workspace_bytes": 512 << 20}, LIMIT, "512"),
        ({"cudnn_workspace_bytes": False}, LIMIT, None),
        ({"cudnn_autotune": False}, "TF_CUDNN_USE_AUTOTUNE", "0"),
        ({"cudnn_autotune": True}, "TF_CUDNN_USE_AUTOTUNE", "1"),
        ({"deterministic": True}, "TF_DETERMINISTIC_OPS", "1"),
        ({"cuda_data_dir": None}, "XLA_FLAGS", None),
        (
            {"auto_clustering": "fusible"},
            "TF_XLA_FLAGS",
            "--tf_xla_auto_jit=2 --tf_xla_ops_to_cluster=FUSIBLE",
        ),
        ({"auto_clustering": False}, "TF_XLA_FLAGS", "--tf_xla_auto_jit=-1"),
        ({"visible_devices": [1]}, "CUDA_VISIBLE_DEVICES", "GPU-1"),
        ({"visible_devices": ["GPU-1", 0]}, "CUDA_VISIBLE_DEVICES", "GPU-1,GPU-0"),
        ({"visible_devices": False}, "CUDA_VISIBLE_DEVICES", "-1"),
        ({"visible_devices": []}, "CUDA_VISIBLE_DEVICES", "-1"),
        ({"visible_devices": None}, "CUDA_VISIBLE_DEVICES", None),
        ({"visible_devices": None}, "CUDA_DEVICE_ORDER", None),
    ],
)
def test_wishes(wishes: dict[str, Any], name: str, value: str | None) -> None:
    assert new(k80(), **wishes).get(name) == value


def test_memory_limit_is_a_row_of_its_own() -> None:
    wishes = Wishes(memory_limit_bytes=8 * GIB)
    assert row_of("memory limit", decide(k80(), {}, wishes)).new == "8192 MiB"
    row = row_of("memory limit", decide(System(), {}, wishes))
    assert (row.new, row.state) == (None, "note")


def test_hidden_gpus_need_nothing() -> None:
    for value in "", "-1", "-1,0":
        assert new(k80(), {"CUDA_VISIBLE_DEVICES": value}) == {}
    assert set(new(k80(), visible_devices=False)) == {"CUDA_VISIBLE_DEVICES"}


@pytest.mark.parametrize(
    "name, value",
    [
        ("CUDA_VISIBLE_DEVICES", "1,0"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "false"),
        ("TF_GPU_THREAD_MODE", "gpu_private"),
        ("TF_GPU_THREAD_COUNT", "7"),
        (LIMIT, "64"),
        ("XLA_FLAGS", "--xla_gpu_cuda_data_dir=/mine"),
    ],
)
def test_what_the_user_set_stays(name: str, value: str) -> None:
    row = row_of(name, decide(k80(), {name: value}))
    assert (row.old, row.new, row.pinned) == (value, value, True)


def test_the_users_settings_decide_about_their_neighbours() -> None:
    # In another order their indices would mean other dies.
    assert "CUDA_DEVICE_ORDER" not in new(k80(), {"CUDA_VISIBLE_DEVICES": "1"})
    assert "TF_GPU_THREAD_COUNT" not in new(k80(), {"TF_GPU_THREAD_MODE": "global"})
    one = {"CUDA_VISIBLE_DEVICES": "1"}
    assert new(k80(host=Host(cpu_count=2)), one)["TF_GPU_THREAD_COUNT"] == "2"


def test_flags_are_appended() -> None:
    environ = {"XLA_FLAGS": "--xla_a=1", "TF_XLA_FLAGS": "--tf_b"}
    found = new(k80(), environ, auto_clustering="fusible")
    assert found["XLA_FLAGS"] == f"--xla_a=1 {FLAG}"
    assert found["TF_XLA_FLAGS"].startswith("--tf_b --tf_xla_auto_jit=2 ")


def test_libdevice_elsewhere_is_found_without_us() -> None:
    system = with_tools(libdevice="/usr/local/cuda/nvvm/libdevice/libdevice.10.bc")
    assert "XLA_FLAGS" not in new(system)
    assert "XLA_FLAGS" not in new(with_tools(libdevice=None))


@pytest.mark.parametrize(
    "values, first",
    [
        ({}, False),
        ({"ptxas": "/usr/bin/ptxas", "ptxas_version": (11, 2)}, False),
        ({"ptxas": "/usr/bin/ptxas", "ptxas_version": (12, 0)}, True),
        ({"ptxas": "/usr/bin/ptxas", "ptxas_version": (13, 1)}, True),
        ({"ptxas": None, "ptxas_version": None}, True),
        ({"ptxas": None, "ptxas_version": None, "packages": ()}, False),
    ],
)
def test_ptxas_of_the_wheel_goes_first_if_the_other_cannot(
    values: dict[str, Any], first: bool
) -> None:
    found = new(with_tools(**values), {"PATH": "/usr/bin"})
    assert found.get("PATH") == (f"{NVCC}/bin:/usr/bin" if first else None)


def test_other_cards_can_use_any_ptxas() -> None:
    nvml = NVMLReading(dies=(die(0, name="Tesla T4", compute_capability=(7, 5)),))
    tools = dataclasses.replace(TOOLS, ptxas_version=(12, 0))
    found = decide(k80(nvml=nvml, cuda_tools=tools), {"PATH": "/usr/bin"})
    assert {"PATH", "data layout"}.isdisjoint(row.name for row in found)


@pytest.mark.parametrize(
    "nvrtc_link, version, wanted",
    [
        (False, "8.5.0.96", True),
        (False, "8.7.0.84", True),
        (False, "8.9.6.50", False),
        (True, "8.7.0.84", False),
        (None, "8.7.0.84", False),
    ],
)
def test_preload_where_cudnn_would_abort(
    nvrtc_link: bool | None, version: str, wanted: bool
) -> None:
    packages = (CUDAPackage("nvidia-cudnn-cu11", version),)
    system = with_tools(nvrtc_link=nvrtc_link, packages=packages)
    rows = {row.name: row for row in decide(system, {}, exists=never)}
    assert ("preload of cuDNN" in rows) == wanted
    if wanted:
        row = rows["preload of cuDNN"]
        assert row.new == NVIDIA
        assert "nothing can undo that" in row.reason
        assert row.command is not None
        assert row.command.startswith("pip install nvidia-cuda-nvrtc-cu11==11.8.89 ")
        assert row.command.endswith(
            "ln -s ../../cuda_nvrtc/lib/libnvrtc.so.11.2 "
            "/venv/nvidia/cudnn/lib/libnvrtc.so"
        )
    unasked = decide(system, {}, Wishes(preload_cudnn=False), exists=never)
    assert "preload of cuDNN" not in {row.name for row in unasked}


def test_preload_leaves_another_cudnn_alone() -> None:
    rows = decide(
        with_tools(nvrtc_link=False),
        {"LD_LIBRARY_PATH": "/a:/b"},
        exists={"/b/libcudnn.so.8"}.__contains__,
    )
    row = row_of("preload of cuDNN", rows)
    assert (row.new, row.pinned) == (None, True)
    assert "/b" in row.reason


def test_the_kernel_knows_when_nvml_is_not_to_be_had() -> None:
    pci = (PCIDevice("0000:05:00.0", 0x102D, kernel_driver="nvidia"),)
    system = System(pci=pci, nvml=NVMLReading(error="ModuleNotFoundError"))
    assert new(system)["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    unused = dataclasses.replace(pci[0], kernel_driver="nouveau")
    assert decide(dataclasses.replace(system, pci=(unused,)), {}) == ()


def test_cuda_malloc_async_is_vetoed_below_6_0() -> None:
    environ = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    with pytest.raises(InvalidArgumentError, match="below 6.0.*3.7.*Unset"):
        decide(k80(), environ)
    nvml = NVMLReading(dies=(die(0, compute_capability=(7, 5)),))
    assert decide(k80(nvml=nvml), environ)
    assert decide(System(), environ) == ()


BUSY = (Process(pid=1, memory_bytes=GIB),)


@pytest.mark.parametrize(
    "changes, order",
    [
        ({}, [0, 1, 2, 3]),
        ({0: {"processes": BUSY}, 1: {"processes": BUSY}}, [2, 3, 0, 1]),
        ({0: {"processes": BUSY}}, [2, 3, 1, 0]),
        ({0: {"processes": BUSY}, 3: {"processes": BUSY}}, [1, 2, 0, 3]),
        ({2: {"board_id": 1}, 1: {"board_id": 2}}, [0, 2, 1, 3]),
        ({1: {"lost": True, "uuid": None}}, [0, 2, 3]),
        ({0: {"memory_total_bytes": 2 * GIB}}, [1, 2, 3, 0]),
        ({2: {"memory_total_bytes": 12206 << 20}}, [0, 1, 2, 3]),
        ({0: {"processes": None}}, [0, 1, 2, 3]),
    ],
)
def test_idle_dies_first_boards_together(
    changes: dict[int, dict[str, Any]], order: list[int]
) -> None:
    dies = tuple(die(i, **changes.get(i, {})) for i in range(4))
    found = new(k80(nvml=NVMLReading(dies=dies)))
    assert found["CUDA_VISIBLE_DEVICES"] == ",".join(f"GPU-{i}" for i in order)


def test_one_die_leaves_nothing_to_choose() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in new(k80(1))


@pytest.mark.parametrize(
    "wish, message",
    [
        ([4], r"dies of this machine: 0 \(GPU-0\), 1 \(GPU-1\). Received: 4"),
        (["GPU-9"], "Received: 'GPU-9'"),
        (["GPU-"], "Received: 'GPU-'"),  # which one?
        ([""], "Received: ''"),
        ([0, "GPU-0"], "each die at most once"),
        ([2], "dies that the driver can reach. Received: 2"),
    ],
)
def test_wrong_dies(wish: list[int | str], message: str) -> None:
    lost = die(2, lost=True, uuid=None)
    nvml = NVMLReading(dies=(die(0), die(1), lost))
    with pytest.raises(InvalidArgumentError, match=message):
        new(k80(nvml=nvml), visible_devices=wish)


@pytest.mark.parametrize(
    "wish, message",
    [
        ({"memory_growth": "yes"}, "\"auto\", None, True or False. Received: 'yes'"),
        ({"memory_growth": 1}, "Received: 1"),
        ({"memory_limit_bytes": 8192}, "at least 1 MiB"),
        ({"memory_limit_bytes": True}, "Received: True"),
        ({"gpu_threads": 0}, "at least 1. Received: 0"),
        ({"gpu_threads": -3}, "Received: -3"),
        ({"gpu_threads": True}, "Received: True"),
        ({"cpu_threads": 1.5}, "Received: 1.5"),
        ({"cudnn_workspace_bytes": 512}, "bytes, at least 1 MiB"),
        ({"cudnn_autotune": "auto"}, "None, True or False"),
        ({"deterministic": 1}, "None, True or False"),
        ({"cuda_data_dir": ""}, "folder of a CUDA toolkit"),
        ({"auto_clustering": "all"}, 'must be "fusible", None or False'),
        ({"auto_clustering": True}, "Received: True"),
        ({"visible_devices": "0,1"}, "a list of NVML indices and UUIDs"),
        ({"visible_devices": [-1]}, r"Received: \[-1\]"),
        ({"preload_cudnn": True}, '"auto", None or False'),
    ],
)
def test_wrong_values(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as error:
        Wishes(**wish)
    assert str(error.value).startswith(f"configure: {next(iter(wish))} must be ")


def test_wishes_that_this_machine_cannot_have() -> None:
    with pytest.raises(InvalidArgumentError, match="must fit every die"):
        new(k80(), memory_limit_bytes=12 * GIB)
    with pytest.raises(InvalidArgumentError, match="'/mine', which does not exist"):
        new(k80(), cuda_data_dir="/mine")


def test_a_data_dir_of_the_users_choice() -> None:
    wishes = Wishes(cuda_data_dir="/mine")
    rows = decide(k80(), {"PATH": "/bin"}, wishes, exists=lambda path: True)
    assert row_of("PATH", rows).new == "/mine/bin:/bin"
    assert row_of("XLA_FLAGS", rows).new == "--xla_gpu_cuda_data_dir=/mine"
