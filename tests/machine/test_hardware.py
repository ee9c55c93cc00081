"""The facts agree with each other and with what NVIDIA prints."""

from __future__ import annotations

import pytest

from k80keras.machine import hardware
from k80keras.machine.hardware import GK210, TESLA_K80


def test_peaks_of_a_die() -> None:
    assert GK210.peak_flops(562) == pytest.approx(2.81e12, rel=0.002)
    assert GK210.peak_flops(823.5) == pytest.approx(4.11e12, rel=0.002)
    assert GK210.peak_flops() == pytest.approx(4.37e12, rel=0.002)
    assert GK210.memory_bandwidth_bytes_per_second == 240.48e9


def test_a_board_is_what_nvidia_sells() -> None:
    die = TESLA_K80.die
    cores = TESLA_K80.dies * die.multiprocessors * die.cores_per_multiprocessor
    assert cores == 4992
    # NVIDIA's 8.73 TFLOP/s and 480 GB/s.
    assert TESLA_K80.dies * die.peak_flops() == pytest.approx(8.73e12, rel=0.002)
    bandwidth = TESLA_K80.dies * die.memory_bandwidth_bytes_per_second
    assert bandwidth == pytest.approx(480e9, rel=0.002)


def test_ecc_takes_a_sixteenth_of_the_memory() -> None:
    share = GK210.memory_bytes_ecc / GK210.memory_bytes
    assert share == pytest.approx(15 / 16, abs=0.001)


def test_device_at_a_clock() -> None:
    device = GK210.device(clock_mhz=562, ecc=False)

    assert device.compute_capability == (3, 7)
    assert device.peak_flops == GK210.peak_flops(562)
    assert device.memory_bytes == GK210.memory_bytes
    assert GK210.device().peak_flops == GK210.peak_flops(875)
    assert GK210.device().memory_bytes == GK210.memory_bytes_ecc


def test_nobody_measured_more_than_the_peak() -> None:
    flops, bandwidth = GK210.peak_flops(), GK210.memory_bandwidth_bytes_per_second
    peaks = {
        hardware.GK210_MATMUL: flops,
        hardware.GK210_CONVOLUTION: flops,
        hardware.GK210_MEMORY: bandwidth,
        hardware.GK210_MEMORY_ECC: bandwidth,
        hardware.GK210_ELEMENTWISE: bandwidth,
        # 16 lanes of PCIe 3: 15.75 GB/s each way.
        hardware.GK210_HOST_COPY: 15.75e9,
        hardware.K80_PEER_COPY: 31.5e9,
    }
    for rate, peak in peaks.items():
        assert 0 < rate.low <= rate.high < peak, rate
        assert rate.source and rate.conditions


@pytest.mark.parametrize(
    "name, capability, processors, clock_mhz, teraflops, float16_rate",
    [
        ("Tesla K80", (3, 7), 13, 875, 4.37, 1.0),
        ("Tesla P100", (6, 0), 56, 1480, 10.6, 2.0),
        ("GeForce GTX 1080", (6, 1), 20, 1733, 8.87, 1 / 64),
        ("Tesla V100", (7, 0), 80, 1530, 15.7, 2.0),
        ("Tesla T4", (7, 5), 40, 1590, 8.14, 2.0),
    ],
)
def test_other_gpus(
    name: str,
    capability: tuple[int, int],
    processors: int,
    clock_mhz: float,
    teraflops: float,
    float16_rate: float,
) -> None:
    device = hardware.gpu(name, capability, processors, clock_mhz)

    assert device.peak_flops == pytest.approx(teraflops * 1e12, rel=0.003)
    assert device.float16_rate == float16_rate
    assert device.memory_bandwidth_bytes_per_second is None


def test_bandwidth_of_another_gpu() -> None:
    device = hardware.gpu("V100", (7, 0), memory_clock_mhz=877, memory_bus_bits=4096)

    assert device.memory_bandwidth_bytes_per_second == pytest.approx(898e9, rel=0.001)
    assert device.peak_flops is None


def test_what_is_not_known_is_none() -> None:
    unheard_of = hardware.gpu("GPU", (99, 0), multiprocessors=10, clock_mhz=1000)
    processor = hardware.cpu(memory_bytes=2**34)

    assert (unheard_of.peak_flops, unheard_of.float16_rate) == (None, None)
    assert processor == hardware.DeviceSpec("CPU", memory_bytes=2**34)
