"""What a Tesla K80 is, as frozen facts, and as much of other devices as is known.

A figure is a specification (with its document beside it) or was published by
somebody who measured it (`Measured`, with the place). None was measured by this
project: it has no K80.
"""

from __future__ import annotations

import dataclasses

_MIB = 2**20


@dataclasses.dataclass(frozen=True)
class Measured:
    """A rate that somebody measured and published.

    Attributes:
      low: Float, per second: floating-point operations or bytes.
      high: Float, the highest one; equal to `low` for a single measurement.
      conditions: String, what was run.
      source: String, where it is published.
    """

    low: float
    high: float
    conditions: str
    source: str


@dataclasses.dataclass(frozen=True)
class DeviceSpec:
    """What a planner needs of a device. `None` means "not known".

    Attributes:
      name: String.
      compute_capability: Tuple of ints; `None` for a CPU.
      peak_flops: Float. Operations in float32 per second at the clock assumed;
        a fused multiply-add counts as two.
      memory_bandwidth_bytes_per_second: Float. The peak, as wired.
      memory_bytes: Int. What a program may have, the driver's share included.
      float16_rate: Float. Arithmetic in float16 relative to float32. 1.0 where
        float16 is only stored, and converted to compute.
    """

    name: str
    compute_capability: tuple[int, int] | None = None
    peak_flops: float | None = None
    memory_bandwidth_bytes_per_second: float | None = None
    memory_bytes: int | None = None
    float16_rate: float | None = None


@dataclasses.dataclass(frozen=True)
class GPUSpec:
    """A GPU whose figures are all known.

    Attributes:
      name: String.
      architecture: String, NVIDIA's name of the generation.
      compute_capability: Tuple of ints.
      multiprocessors: Int.
      cores_per_multiprocessor: Int. Each does one fused multiply-add in float32
        per clock.
      base_clock_mhz: Int.
      boost_clock_mhz: Int, the highest application clock.
      memory_clock_mhz: Int, as NVML tells it; there are two transfers per clock.
      memory_bus_bits: Int.
      memory_bytes: Int, without ECC.
      memory_bytes_ecc: Int, with ECC.
      l2_bytes: Int.
      registers_per_multiprocessor: Int, of 32 bits.
      shared_memory_bytes_per_multiprocessor: Int.
      float16_rate: Float, see `DeviceSpec`.
    """

    name: str
    architecture: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    cores_per_multiprocessor: int
    base_clock_mhz: int
    boost_clock_mhz: int
    memory_clock_mhz: int
    memory_bus_bits: int
    memory_bytes: int
    memory_bytes_ecc: int
    l2_bytes: int
    registers_per_multiprocessor: int
    shared_memory_bytes_per_multiprocessor: int
    float16_rate: float

    @property
    def memory_bandwidth_bytes_per_second(self) -> float:
        """The peak, as wired."""
        return 2e6 * self.memory_clock_mhz * self.memory_bus_bits / 8

    def peak_flops(self, clock_mhz: float | None = None) -> float:
        """Returns the operations in float32 per second, without a stall.

        Args:
          clock_mhz: Float. Defaults to the boost clock.
        """
        clock_mhz = self.boost_clock_mhz if clock_mhz is None else clock_mhz
        cores = self.multiprocessors * self.cores_per_multiprocessor
        return 2e6 * cores * clock_mhz

    def device(self, clock_mhz: float | None = None, ecc: bool = True) -> DeviceSpec:
        """Returns this GPU at a clock, as a planner sees it.

        Args:
          clock_mhz: Float. Defaults to the boost clock.
          ecc: Bool. Whether memory is protected.
        """
        return DeviceSpec(
            name=self.name,
            compute_capability=self.compute_capability,
            peak_flops=self.peak_flops(clock_mhz),
            memory_bandwidth_bytes_per_second=self.memory_bandwidth_bytes_per_second,
            memory_bytes=self.memory_bytes_ecc if ecc else self.memory_bytes,
            float16_rate=self.float16_rate,
        )


@dataclasses.dataclass(frozen=True)
class BoardSpec:
    """A card.

    Attributes:
      name: String.
      die: `GPUSpec` of each of its GPUs.
      dies: Int.
      power_watts: Int, the limit of the whole card.
      power_watts_per_die: Int, the default limit that the driver sets.
      pci_device_id: Int, of each die.
      pcie_generation: Int.
      pcie_lanes: Int, of the card, and from its switch to each die.
      pcie_switch: String. The dies reach each other through it without the host.
    """

    name: str
    die: GPUSpec
    dies: int
    power_watts: int
    power_watts_per_die: int
    pci_device_id: int
    pcie_generation: int
    pcie_lanes: int
    pcie_switch: str


# Cores, clocks, bus, capacity: NVIDIA, Tesla K80 board specification
# BD-07317-001. Multiprocessors, L2 and memory clock: as the CUDA samples'
# deviceQuery prints them. Registers and shared memory: CUDA C++ Programming
# Guide, table of technical specifications, column 3.7. The same guide gives no
# throughput of float16 arithmetic for 3.7; cuDNN's kernels for it convert and
# compute in float32. Memory: nvidia-smi, which rounds down to MiB; without ECC it
# differs by a MiB or so between drivers.
GK210 = GPUSpec(
    name="GK210",
    architecture="Kepler",
    compute_capability=(3, 7),
    multiprocessors=13,
    cores_per_multiprocessor=192,
    base_clock_mhz=562,
    boost_clock_mhz=875,
    memory_clock_mhz=2505,
    memory_bus_bits=384,
    memory_bytes=12206 * _MIB,
    memory_bytes_ecc=11441 * _MIB,
    l2_bytes=1_572_864,
    registers_per_multiprocessor=131_072,
    shared_memory_bytes_per_multiprocessor=114_688,
    float16_rate=1.0,
)

# The same board specification; the limit of a die: nvidia-smi. The switch is a
# PEX 8747, as lspci shows it.
TESLA_K80 = BoardSpec(
    name="Tesla K80",
    die=GK210,
    dies=2,
    power_watts=300,
    power_watts_per_die=149,
    pci_device_id=0x102D,
    pcie_generation=3,
    pcie_lanes=16,
    pcie_switch="PLX PEX 8747",
)

_BABELSTREAM = "UoB-HPC/BabelStream, results/v1.0/cuda/nvidia-k80-ecc-"
_PAI = "flyliu2017/pai210, tests/PerformanceTest/README.md"
_PROFET = "ddps-lab/profet: Keras training on one die of an Amazon p2.xlarge"

# What one die was measured to reach, in bytes or float32 operations per second.
GK210_MEMORY_ECC = Measured(
    176.95e9, 180.19e9, "STREAM triad and copy, ECC on", _BABELSTREAM + "on.txt"
)
GK210_MEMORY = Measured(
    203.42e9, 203.91e9, "STREAM triad and copy, ECC off", _BABELSTREAM + "off.txt"
)
GK210_MATMUL = Measured(
    2.905e12, 2.905e12, "cuBLAS SGEMM 1536 x 1536 x 1536, CUDA 8.0", _PAI
)
GK210_CONVOLUTION = Measured(
    1.0e12, 1.3e12, "convolutions while ResNet-50 trains, ECC on", _PROFET
)
GK210_ELEMENTWISE = Measured(
    115e9, 130e9, "elementwise operations and BatchNormalization, ECC on", _PROFET
)
GK210_HOST_COPY = Measured(
    11.3e9, 11.32e9, "bandwidthTest, pinned memory, either direction", _PAI
)
K80_PEER_COPY = Measured(
    21.4e9, 22.3e9, "between the dies of a board, both directions together", _PAI
)

# Cores for float32 per multiprocessor, and the rate of float16 relative to
# float32: CUDA C++ Programming Guide, throughput of native arithmetic
# instructions. Where it gives none for float16, it is converted to compute.
_CORES_AND_FLOAT16_RATE = {
    (3, 0): (192, 1.0),
    (3, 5): (192, 1.0),
    (3, 7): (192, 1.0),
    (5, 0): (128, 1.0),
    (5, 2): (128, 1.0),
    (5, 3): (128, 2.0),
    (6, 0): (64, 2.0),
    (6, 1): (128, 1 / 64),
    (6, 2): (128, 2.0),
    (7, 0): (64, 2.0),
    (7, 2): (64, 2.0),
    (7, 5): (64, 2.0),
}


def gpu(
    name: str,
    compute_capability: tuple[int, int],
    multiprocessors: int | None = None,
    clock_mhz: float | None = None,
    memory_clock_mhz: float | None = None,
    memory_bus_bits: int | None = None,
    memory_bytes: int | None = None,
) -> DeviceSpec:
    """Returns what can be told of any NVIDIA GPU from what it says of itself.

    Args:
      name: String.
      compute_capability: Tuple of ints.
      multiprocessors: Int.
      clock_mhz: Float. The clock to assume.
      memory_clock_mhz: Float, as NVML tells it.
      memory_bus_bits: Int.
      memory_bytes: Int.
    """
    cores, float16_rate = _CORES_AND_FLOAT16_RATE.get(compute_capability, (None, None))
    flops = bandwidth = None
    if cores and multiprocessors and clock_mhz:
        flops = 2e6 * cores * multiprocessors * clock_mhz
    if memory_clock_mhz and memory_bus_bits:
        bandwidth = 2e6 * memory_clock_mhz * memory_bus_bits / 8
    return DeviceSpec(
        name, compute_capability, flops, bandwidth, memory_bytes, float16_rate
    )


def cpu(name: str = "CPU", memory_bytes: int | None = None) -> DeviceSpec:
    """Returns what is known of a processor: its memory."""
    return DeviceSpec(name, memory_bytes=memory_bytes)
