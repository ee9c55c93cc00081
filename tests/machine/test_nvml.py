"""Readings through the real binding, of the simulated box."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from k80keras.errors import InvalidArgumentError
from k80keras.machine import nvml
from k80keras.machine.system import Die, NVMLReading, Process
from tests.sim.box import Box
from tests.sim.scenario import SCENARIOS

pytest.importorskip("pynvml")

HEALTHY = Die(
    nvml_index=0,
    name="Tesla K80",
    uuid="GPU-1b6b53f4-7a0c-4f0e-9c55-0c3d5e8a1101",
    serial="0320615095340",
    pci_bus_id="0000:05:00.0",
    board_id=0x300,
    multi_gpu_board=True,
    compute_capability=(3, 7),
    memory_total_bytes=11_996_954_624,
    memory_used_bytes=0,
    graphics_clock_mhz=324,
    graphics_clock_max_mhz=875,
    graphics_clock_application_mhz=562,
    graphics_clock_application_default_mhz=562,
    memory_clock_mhz=324,
    memory_clock_max_mhz=2505,
    memory_clock_application_mhz=2505,
    auto_boost=True,
    power_watts=29.5,
    power_limit_watts=149.0,
    power_limit_default_watts=149.0,
    power_limit_max_watts=175.0,
    temperature_celsius=38,
    temperature_slowdown_celsius=88,
    temperature_shutdown_celsius=93,
    utilization_percent=0,
    throttle_reasons=("gpu_idle",),
    violation_seconds=dict.fromkeys(
        [
            "power",
            "thermal",
            "sync_boost",
            "board_limit",
            "low_utilization",
            "reliability",
            "app_clocks",
            "base_clocks",
        ],
        0.0,
    ),
    ecc_enabled=True,
    ecc_enabled_after_reboot=True,
    ecc_corrected_volatile=0,
    ecc_uncorrected_volatile=0,
    ecc_corrected_aggregate=0,
    ecc_uncorrected_aggregate=0,
    retired_pages_single_bit=0,
    retired_pages_double_bit=0,
    retired_pages_pending=False,
    persistence_mode=True,
    pcie_generation=3,
    pcie_generation_max=3,
    pcie_width=16,
    pcie_width_max=16,
    pcie_replays=0,
    cpu_affinity=(0, 2, 65),
    processes=(Process(4242, 2**20),),
)


def child(environ: dict[str, str], code: str = "") -> str:
    """Returns what a process prints; without `code`, a reading."""
    done = subprocess.run(
        [sys.executable, *(["-c", code] if code else ["-m", nvml.__name__])],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def read(box: Box, **changes: Any) -> NVMLReading:
    return nvml.from_json(child(box.environ(box.scenario(**changes))))


def test_healthy_box(nvml_box: Box) -> None:
    reading = read(
        nvml_box,
        **{
            **SCENARIOS["healthy"],
            "boards.0.dies.0.persistence": True,
            "boards.0.dies.0.cpu_affinity": [0, 2, 65],
            "boards.0.dies.0.processes": [{"pid": 4242, "memory": 2**20}],
        },
    )

    assert reading.error is None
    assert reading.driver_version == "470.256.02"
    assert reading.nvml_version == "11.470.256.02"
    assert reading.cuda_version == (11, 4)
    assert reading.dies[0] == HEALTHY
    assert [die.nvml_index for die in reading.dies] == [0, 1, 2, 3]
    # NVML writes the last one "00000000:0A:00.0".
    addresses = [die.pci_bus_id for die in reading.dies]
    assert addresses == [f"0000:{bus}:00.0" for bus in ("05", "06", "09", "0a")]
    assert [die.board_id for die in reading.dies] == [768, 768, 1792, 1792]
    assert reading.peers == ((0, 1), (2, 3))
    # R470 has everything that is asked for first.
    assert reading.missing_functions == ()


def test_no_card(nvml_box: Box) -> None:
    reading = read(nvml_box, **SCENARIOS["no_card"])

    assert reading.error is None
    assert reading.driver_version == "470.256.02"
    assert (reading.dies, reading.peers) == ((), ())


@pytest.mark.parametrize(
    "status, error",
    [
        (18, "version_mismatch"),
        (9, "driver_not_loaded"),
        (4, "no_permission"),
        (20, "Insufficient Memory"),
    ],
)
def test_unusable_driver(nvml_box: Box, status: int, error: str) -> None:
    reading = read(nvml_box, functions_error={"nvmlInitWithFlags": status})
    assert reading == NVMLReading(error=error)


def test_named_scenarios_of_a_driver(nvml_box: Box) -> None:
    for name, error in {
        "driver_mismatch": "version_mismatch",
        "driver_not_loaded": "driver_not_loaded",
    }.items():
        assert read(nvml_box, **SCENARIOS[name]) == NVMLReading(error=error)


def test_library_not_found(nvml_box: Box) -> None:
    environ = nvml_box.environ()
    del environ["LD_LIBRARY_PATH"]
    reading = nvml.from_json(child(environ))
    if reading.error is None:
        pytest.skip("this machine has NVIDIA's driver")
    assert reading == NVMLReading(error="library_not_found")


def test_library_that_cannot_be_loaded(nvml_box: Box, tmp_path: Any) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("rubbish")
    environ = {**nvml_box.environ(), "LD_LIBRARY_PATH": str(tmp_path)}
    # The loader goes on to the next place, where the real driver may be.
    reading = nvml.from_json(child(environ))
    if reading.error is None:
        pytest.skip("this machine has NVIDIA's driver")
    assert reading == NVMLReading(error="library_not_found")


def test_binding_not_installed() -> None:
    code = (
        "import sys; sys.modules['pynvml'] = None\n"
        "from k80keras.machine import nvml; print(nvml.to_json(nvml.read()))"
    )
    reading = nvml.from_json(child(dict(os.environ), code))
    assert reading == NVMLReading(error="nvidia-ml-py is not installed")


def test_lost_die(nvml_box: Box) -> None:
    reading = read(nvml_box, **SCENARIOS["die_lost"])

    assert reading.error is None
    assert reading.dies[1] == Die(1, lost=True)
    assert [die.lost for die in reading.dies] == [False, True, False, False]
    assert reading.peers == ((2, 3),)


@pytest.mark.parametrize(
    "status, die",
    [
        (15, {"lost": True}),
        (999, {"lost": True}),
        (4, {"error": "no_permission"}),
        (8, {"error": "insufficient_power"}),
    ],
)
def test_die_without_a_handle(nvml_box: Box, status: int, die: dict[str, Any]) -> None:
    reading = read(nvml_box, functions_error={"nvmlDeviceGetHandleByIndex_v2": status})
    assert reading.dies == tuple(Die(index, **die) for index in range(4))


def test_die_that_gets_lost_meanwhile(nvml_box: Box) -> None:
    reading = read(nvml_box, functions_error={"nvmlDeviceGetTemperature": 15})
    assert reading.dies == tuple(Die(index, lost=True) for index in range(4))


def test_hot_die(nvml_box: Box) -> None:
    die = read(nvml_box, **SCENARIOS["hot"]).dies[2]

    assert die.temperature_celsius == 90
    assert die.throttle_reasons == ("hw_slowdown", "sw_thermal_slowdown")
    assert die.violation_seconds is not None
    assert die.violation_seconds["thermal"] == 600.0
    assert die.violation_seconds["power"] == 0.0
    assert die.utilization_percent == 100


def test_ecc_faults(nvml_box: Box) -> None:
    faulty, healthy = read(nvml_box, **SCENARIOS["ecc_faults"]).dies[:2]

    assert (faulty.ecc_corrected_volatile, faulty.ecc_uncorrected_volatile) == (12, 2)
    assert (faulty.ecc_corrected_aggregate, faulty.ecc_uncorrected_aggregate) == (40, 3)
    assert (faulty.retired_pages_single_bit, faulty.retired_pages_double_bit) == (1, 2)
    assert faulty.retired_pages_pending is True
    assert (healthy.ecc_uncorrected_aggregate, healthy.retired_pages_pending) == (
        0,
        False,
    )


def test_ecc_switched_off_at_the_next_restart(nvml_box: Box) -> None:
    die = read(nvml_box, **{"boards.0.dies.0.ecc_pending": False}).dies[0]
    assert (die.ecc_enabled, die.ecc_enabled_after_reboot) == (True, False)


def test_values_that_nvml_does_not_support_are_none(nvml_box: Box) -> None:
    die = read(
        nvml_box,
        **{
            "boards.0.dies.0.ecc": False,
            "boards.0.dies.0.power": "N/A",
            "boards.0.dies.0.temperature": "N/A",
            "boards.0.dies.0.violation.power": "N/A",
        },
    ).dies[0]

    assert (die.power_watts, die.temperature_celsius) == (None, None)
    assert die.ecc_enabled is False
    assert die.ecc_corrected_volatile is None
    assert die.memory_total_bytes == 12_799_180_800
    assert die.violation_seconds is not None
    assert "power" not in die.violation_seconds


def test_old_nvml(nvml_box: Box) -> None:
    reading = read(nvml_box, **SCENARIOS["old_nvml"])

    assert reading.peers is None
    assert {die.violation_seconds for die in reading.dies} == {None}
    assert reading.dies[0].temperature_celsius == 38
    # Once each, however many dies and causes were asked about.
    assert sorted(reading.missing_functions) == [
        "nvmlDeviceGetP2PStatus",
        "nvmlDeviceGetViolationStatus",
    ]


def test_nvml_of_tomorrow_without_the_old_names(nvml_box: Box) -> None:
    old = [
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetTemperature",
    ]
    processes = {"boards.0.dies.0.processes": [{"pid": 7, "memory": 4096}]}
    today = read(nvml_box, **processes)
    tomorrow = read(nvml_box, newer_nvml=True, functions_missing=old, **processes)

    assert tomorrow.dies == today.dies
    assert tomorrow.dies[0].processes == (Process(7, 4096),)
    assert sorted(tomorrow.missing_functions) == old


def test_functions_missing_without_a_newer_name(nvml_box: Box) -> None:
    missing = ["nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetTemperature"]
    reading = read(nvml_box, functions_missing=missing)

    assert reading.dies[0].processes is None
    assert reading.dies[0].temperature_celsius is None
    assert set(missing) < set(reading.missing_functions)


def test_json_round_trip() -> None:
    for reading in (
        NVMLReading(),
        NVMLReading(error="driver_not_loaded"),
        NVMLReading(
            driver_version="470.256.02",
            cuda_version=(11, 4),
            dies=(HEALTHY, Die(1, lost=True), Die(2, processes=(Process(1),))),
            peers=((0, 1),),
            missing_functions=("nvmlDeviceGetViolationStatus",),
        ),
    ):
        assert nvml.from_json(nvml.to_json(reading)) == reading


@pytest.mark.parametrize(
    "text", ["", "Segmentation fault", "[]", "null", '{"dies": [{"colour": 1}]}', "{}"]
)
def test_rubbish_instead_of_a_reading(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="A reading of NVML is the JSON"):
        nvml.from_json(text)


def test_importing_the_door_opens_nothing() -> None:
    code = (
        "import sys; import k80keras.machine.nvml\n"
        "print([m for m in ('pynvml', 'tensorflow', 'keras') if m in sys.modules])"
    )
    assert child(dict(os.environ), code) == "[]\n"
