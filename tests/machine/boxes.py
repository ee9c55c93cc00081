"""A healthy two-board box as a `System`, for tests that break one thing in it."""

from __future__ import annotations

import dataclasses
from typing import Any

from k80keras.machine.system import (
    CUDALibrary,
    CUDAPackage,
    CUDATools,
    Die,
    Host,
    KernelDriver,
    NVMLReading,
    PCIDevice,
    System,
    TensorFlowBuild,
    TensorFlowRun,
)

ADDRESSES = ("0000:05:00.0", "0000:06:00.0", "0000:09:00.0", "0000:0a:00.0")
SASS = ((3, 5), (5, 0), (6, 0), (7, 0), (7, 5), (8, 0))
GIB = 1 << 30


def die(index: int, **changes: Any) -> Die:
    """Returns a healthy die of a healthy box."""
    values: dict[str, Any] = dict(
        name="Tesla K80",
        uuid=f"GPU-0000000{index}-1111-2222-3333-444444444444",
        pci_bus_id=ADDRESSES[index] if index < 4 else f"0000:{index:02x}:00.0",
        board_id=768 + index // 2,
        multi_gpu_board=True,
        compute_capability=(3, 7),
        memory_total_bytes=11996954624,
        memory_used_bytes=0,
        graphics_clock_application_mhz=562,
        graphics_clock_max_mhz=875,
        auto_boost=True,
        power_limit_watts=149.0,
        power_limit_default_watts=149.0,
        temperature_celsius=38,
        temperature_slowdown_celsius=88,
        temperature_shutdown_celsius=93,
        throttle_reasons=("gpu_idle",),
        ecc_enabled=True,
        ecc_uncorrected_volatile=0,
        retired_pages_double_bit=0,
        retired_pages_pending=False,
        persistence_mode=True,
        pcie_width=16,
        pcie_width_max=16,
        processes=(),
    )
    return Die(index, **{**values, **changes})


def healthy(**changes: Any) -> System:
    """Returns a healthy box; `changes` replace fields of the `System`."""
    system = System(
        host=Host(
            distribution="debian",
            distribution_version="12",
            distribution_family=("debian",),
            kernel="6.1.0-18-amd64",
            python=(3, 11, 7),
            cpu_count=16,
            shm_bytes=8 * GIB,
            container=False,
            root=False,
            iommu="off",
        ),
        pci=tuple(PCIDevice(a, 0x102D, "nvidia", True, 0, False) for a in ADDRESSES),
        driver=KernelDriver("470.256.02", False, False, True),
        libcuda=CUDALibrary("/usr/lib/libcuda.so.470.256.02", "470.256.02", (11, 4)),
        nvml=NVMLReading(
            driver_version="470.256.02",
            nvml_version="11.470.256.02",
            cuda_version=(11, 4),
            dies=tuple(die(index) for index in range(4)),
            peers=((0, 1), (2, 3)),
        ),
        tensorflow=TensorFlowBuild(
            "2.14.1", ("tensorflow",), "/tf", True, (11, 8), "8", SASS, ((8, 0),)
        ),
        tensorflow_run=TensorFlowRun(
            gpus=tuple(f"/physical_device:GPU:{n}" for n in range(4)),
            capabilities=((3, 7),) * 4,
        ),
        cuda_tools=CUDATools(
            ptxas="/nvidia/cuda_nvcc/bin/ptxas",
            ptxas_version=(11, 8),
            libdevice="/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
            nvrtc_link=True,
            packages=(
                CUDAPackage("nvidia-cuda-nvcc-cu11", "11.8.89"),
                CUDAPackage("nvidia-cudnn-cu11", "8.7.0.84"),
            ),
            nvidia_path="/nvidia",
        ),
    )
    return dataclasses.replace(system, **changes)


def change(system: System, part: str, **changes: Any) -> System:
    """Returns a `System` with some values of one of its parts replaced."""
    value = dataclasses.replace(getattr(system, part), **changes)
    return dataclasses.replace(system, **{part: value})


def with_dies(**changes: Any) -> System:
    """Returns a healthy box whose third die is changed."""
    dies = [die(index, **(changes if index == 2 else {})) for index in range(4)]
    return change(healthy(), "nvml", dies=tuple(dies))
