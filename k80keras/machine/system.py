"""What `probe` finds, as plain frozen values. `None` means "not known"."""

from __future__ import annotations

import dataclasses
from typing import Mapping

from k80keras.machine.hardware import TESLA_K80
from k80keras.machine.self_test import SelfTest


@dataclasses.dataclass(frozen=True)
class Process:
    """A process with memory on a die.

    Attributes:
      pid: Int, as the driver counts: outside of any container.
      memory_bytes: Int.
    """

    pid: int
    memory_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Die:
    """One GPU as the driver's management library (NVML) sees it.

    Attributes:
      nvml_index: Int. NVML counts in the order of PCI addresses; CUDA may not.
      lost: Bool. Whether the driver has lost contact: all else is `None` then.
      error: String, why the driver refuses this die: `"insufficient_power"` (its
        plug is not in), or NVML's own words. All else is `None` then.
      pci_bus_id: String such as `"0000:05:00.0"`.
      board_id: Int. Dies of one board share it.
      multi_gpu_board: Bool. Whether the board holds several dies.
      throttle_reasons: Tuple of strings, what holds the clocks down right now:
        `"gpu_idle"`, `"applications_clocks_setting"`, `"sw_power_cap"`,
        `"hw_slowdown"`, `"sync_boost"`, `"sw_thermal_slowdown"`,
        `"hw_thermal_slowdown"`, `"hw_power_brake_slowdown"`,
        `"display_clock_setting"`.
      violation_seconds: Mapping from the cause (`"power"`, `"thermal"`,
        `"board_limit"`, `"reliability"`, ...) to the time, since the driver was
        loaded, for which it held the clocks down.
      ecc_*: Errors of memory since the driver was loaded (`volatile`), and
        since the board was made (`aggregate`).
      retired_pages_*: How many pages of memory are out of use, by cause.
      retired_pages_pending: Bool. Whether a page waits for a restart to retire.
      cpu_affinity: Tuple of ints, the processors next to this die.
    """

    nvml_index: int
    lost: bool = False
    error: str | None = None
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    pci_bus_id: str | None = None
    board_id: int | None = None
    multi_gpu_board: bool | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    graphics_clock_mhz: int | None = None
    graphics_clock_max_mhz: int | None = None
    graphics_clock_application_mhz: int | None = None
    graphics_clock_application_default_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    memory_clock_application_mhz: int | None = None
    auto_boost: bool | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    power_limit_max_watts: float | None = None
    temperature_celsius: int | None = None
    temperature_slowdown_celsius: int | None = None
    temperature_shutdown_celsius: int | None = None
    utilization_percent: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    violation_seconds: Mapping[str, float] | None = None
    ecc_enabled: bool | None = None
    ecc_enabled_after_reboot: bool | None = None
    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    retired_pages_single_bit: int | None = None
    retired_pages_double_bit: int | None = None
    retired_pages_pending: bool | None = None
    persistence_mode: bool | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    cpu_affinity: tuple[int, ...] | None = None
    processes: tuple[Process, ...] | None = None

    @property
    def is_k80(self) -> bool:
        """Whether this is a die of a Tesla K80."""
        return "K80" in (self.name or "")

    @property
    def answers(self) -> bool:
        """Whether the driver can reach it."""
        return not self.lost and self.error is None


@dataclasses.dataclass(frozen=True)
class NVMLReading:
    """One look at all dies through NVML.

    Attributes:
      error: String, why there are no values: `"library_not_found"`,
        `"driver_not_loaded"`, `"version_mismatch"` (library and kernel module
        are of different versions), `"no_permission"`, or NVML's own words.
        `None` if NVML answered.
      driver_version: String such as `"470.256.02"`.
      nvml_version: String such as `"11.470.256.02"`.
      cuda_version: Tuple of ints, the newest CUDA that the driver can run:
        (11, 4) for R470.
      dies: Tuple of `Die` in NVML's order, lost ones included.
      peers: Tuple of pairs of `nvml_index` whose dies can read each other's
        memory over PCIe; `None` if NVML cannot tell.
      missing_functions: Tuple of names that this driver's NVML doesn't have.
    """

    error: str | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: tuple[int, int] | None = None
    dies: tuple[Die, ...] = ()
    peers: tuple[tuple[int, int], ...] | None = None
    missing_functions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Host:
    """The machine around the card.

    Attributes:
      distribution: String, `ID` of os-release: `"debian"`, `"ubuntu"`, ...
      distribution_version: String, `VERSION_ID` of os-release.
      distribution_family: Tuple of strings: `ID` and `ID_LIKE`.
      kernel: String, the running kernel's release.
      python: Tuple of ints, of the Python that asks.
      cpu_count: Int. Processors that this process may run on.
      cpu_limit: Float. Processors' worth of time that the cgroup allows; `None`
        without a limit.
      memory_bytes: Int. Memory of the machine.
      memory_limit_bytes: Int. What the cgroup allows; `None` without a limit.
      shm_bytes: Int. Size of `/dev/shm`.
      container: Bool. Whether this runs inside a container.
      root: Bool. Whether this runs as root.
      iommu: String: `"off"`, `"passthrough"`, or `"translated"`.
      secure_boot: Bool. Whether the kernel loads signed modules only.
      pip: String, the command that installs into this Python.
    """

    distribution: str | None = None
    distribution_version: str | None = None
    distribution_family: tuple[str, ...] = ()
    kernel: str | None = None
    python: tuple[int, int, int] | None = None
    cpu_count: int | None = None
    cpu_limit: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    shm_bytes: int | None = None
    container: bool | None = None
    root: bool | None = None
    iommu: str | None = None
    secure_boot: bool | None = None
    pip: str = "pip"


@dataclasses.dataclass(frozen=True)
class PCIDevice:
    """An NVIDIA GPU on the PCI bus, with or without a driver.

    Attributes:
      address: String such as `"0000:05:00.0"`.
      device_id: Int.
      kernel_driver: String, the kernel module that owns it: `"nvidia"`,
        `"nouveau"`, `"vfio-pci"`; `None` if nobody does.
      memory_window: Bool. Whether the firmware gave all of its memory windows
        (BARs) an address.
      numa_node: Int; `None` on machines with one node only.
      link_redirected: Bool. Whether a bridge above it sends what dies say to
        each other up to the root (PCIe Access Control Services).
    """

    address: str
    device_id: int
    kernel_driver: str | None = None
    memory_window: bool | None = None
    numa_node: int | None = None
    link_redirected: bool | None = None

    @property
    def is_k80(self) -> bool:
        """Whether this is a die of a Tesla K80."""
        return self.device_id == TESLA_K80.pci_device_id


@dataclasses.dataclass(frozen=True)
class KernelDriver:
    """NVIDIA's kernel module.

    Attributes:
      version: String such as `"470.256.02"`, of the loaded module.
      open_source: Bool. Whether the loaded module is the open one, which has no
        code for a K80.
      nouveau: Bool. Whether the kernel's own driver is loaded.
      installed: Bool. Whether the running kernel has a module to load.
      dkms_versions: Tuple of strings, driver versions whose source is here to
        be built for each kernel.
    """

    version: str | None = None
    open_source: bool | None = None
    nouveau: bool | None = None
    installed: bool | None = None
    dkms_versions: tuple[str, ...] = ()

    @property
    def branch(self) -> int | None:
        """The version's first number, 470 for a K80's last driver."""
        return branch_of(self.version)


@dataclasses.dataclass(frozen=True)
class CUDALibrary:
    """The `libcuda.so.1` that a program started here would load.

    Attributes:
      path: String, links followed; `None` if there is none.
      version: String, the driver version in its file name.
      cuda_version: Tuple of ints, the CUDA that it speaks.
      error: String, why it cannot be loaded though it is there.
    """

    path: str | None = None
    version: str | None = None
    cuda_version: tuple[int, int] | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class TensorFlowBuild:
    """The installed TensorFlow, read from its files.

    Attributes:
      version: String; `None` if TensorFlow is not installed.
      packages: Tuple of strings, the distributions that bring it.
      path: String, its folder.
      cuda_build: Bool. Whether it was built with CUDA.
      cuda_version: Tuple of ints that it was built with.
      cudnn_version: String that it was built with, `"8"` or longer.
      sass: Tuple of pairs of ints, the compute capabilities for which the wheel
        holds machine code. `None` if the file could not be read.
      ptx: Tuple of pairs of ints, those for which it holds intermediate code,
        which a driver can compile for the same and later ones.
    """

    version: str | None = None
    packages: tuple[str, ...] = ()
    path: str | None = None
    cuda_build: bool | None = None
    cuda_version: tuple[int, int] | None = None
    cudnn_version: str | None = None
    sass: tuple[tuple[int, int], ...] | None = None
    ptx: tuple[tuple[int, int], ...] | None = None


@dataclasses.dataclass(frozen=True)
class TensorFlowRun:
    """What TensorFlow says in a process of its own.

    Attributes:
      error: String, why it cannot be imported.
      gpus: Tuple of strings, the devices that it lists.
      capabilities: Tuple of pairs of ints, one for each of them.
    """

    error: str | None = None
    gpus: tuple[str, ...] = ()
    capabilities: tuple[tuple[int, int] | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class CUDAPackage:
    """A wheel of NVIDIA's libraries.

    Attributes:
      name: String such as `"nvidia-cudnn-cu11"`.
      version: String.
    """

    name: str
    version: str

    @property
    def cuda_major(self) -> int | None:
        """The CUDA that it belongs to: 11 for `...-cu11`."""
        digits = self.name.rpartition("-cu")[2]
        return int(digits) if digits.isdigit() else None


@dataclasses.dataclass(frozen=True)
class CUDATools:
    """What XLA compiles with.

    Attributes:
      ptxas: String, path of the assembler that TensorFlow will run.
      ptxas_version: Tuple of ints. CUDA 12 and later cannot assemble for 3.7.
      libdevice: String, path of the library of device functions.
      nvrtc_link: Bool. Whether an unversioned `libnvrtc.so` can be found; the
        cuDNN wheels of CUDA 11 abort the process without one. `None` if no such
        wheel is installed.
      packages: Tuple of `CUDAPackage`.
      nvidia_path: String, the `nvidia` folder that holds the wheels' files.
    """

    ptxas: str | None = None
    ptxas_version: tuple[int, int] | None = None
    libdevice: str | None = None
    nvrtc_link: bool | None = None
    packages: tuple[CUDAPackage, ...] = ()
    nvidia_path: str | None = None

    def version_of(self, name: str) -> str | None:
        """Returns the version of a wheel, `None` if it is not installed."""
        return next((p.version for p in self.packages if p.name == name), None)


@dataclasses.dataclass(frozen=True)
class System:
    """This machine: what is on the bus, what drives it, what is installed.

    Attributes:
      self_test: Tuple of `SelfTest`, the kept verdicts on several dies, newest last.
      environ: Mapping, the environment variables that decide about GPUs.
      failures: Mapping from the name of a source that could not be read to why.
        Its values above are then those of a machine about which nothing is
        known.
    """

    host: Host = Host()
    pci: tuple[PCIDevice, ...] | None = None
    driver: KernelDriver = KernelDriver()
    libcuda: CUDALibrary = CUDALibrary()
    nvml: NVMLReading = NVMLReading(error="not asked")
    tensorflow: TensorFlowBuild = TensorFlowBuild()
    tensorflow_run: TensorFlowRun | None = None
    cuda_tools: CUDATools = CUDATools()
    self_test: tuple[SelfTest, ...] = ()
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)
    failures: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def dies(self) -> tuple[Die, ...]:
        """The dies that can be used."""
        return tuple(die for die in self.nvml.dies if die.answers)

    @property
    def has_gpu(self) -> bool:
        """Whether there is an NVIDIA GPU, working or not."""
        # A module that contradicts the library is there for some card, though
        # some containers hide the bus.
        mismatch = self.nvml.error == "version_mismatch"
        return bool(self.pci or self.nvml.dies) or mismatch

    @property
    def has_k80(self) -> bool:
        """Whether there is a Tesla K80, working or not."""
        on_bus = any(device.is_k80 for device in self.pci or ())
        return on_bus or any(die.is_k80 for die in self.nvml.dies)


def cuda_version_of(number: int | None) -> tuple[int, int] | None:
    """Returns (11, 4) for CUDA's 11040."""
    return None if number is None else (number // 1000, number % 1000 // 10)


def branch_of(version: str | None) -> int | None:
    """Returns the branch of a driver version, 470 for `"470.256.02"`."""
    first = (version or "").partition(".")[0]
    return int(first) if first.isdigit() else None
