"""The simulated NVML through the real nvidia-ml-py, libcuda beside it."""

from __future__ import annotations

import json
import textwrap
import time
from typing import Any

import pytest

from tests.sim.box import Box
from tests.sim.scenario import SCENARIOS

NVML = """
import json, pynvml as n

def tried(call, *args):
    try:
        return call(*args)
    except (n.NVMLError, n.NVMLLibraryMismatchError) as error:
        return type(error).__name__

def handles():
    n.nvmlInit()
    return [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
"""

CUDA = """
import ctypes, json
cuda, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
status = cuda.cuInit(0)
cuda.cuDeviceGetCount(ctypes.byref(number))

def address(i):
    text = ctypes.create_string_buffer(32)
    cuda.cuDeviceGetPCIBusId(text, 32, i)
    return text.value.decode()[5:7]

def peers(a, b):
    cuda.cuDeviceCanAccessPeer(ctypes.byref(number), a, b)
    return bool(number.value)

buses = [address(i) for i in range(number.value)]
"""


def ask(box: Box, code: str, **changes: Any) -> Any:
    return box.ask(NVML + textwrap.dedent(code), box.scenario(**changes))


def test_healthy_box_has_two_boards(nvml_box: Box) -> None:
    driver, cuda, dies = ask(
        nvml_box,
        """
        dies = handles()
        print(json.dumps([
            n.nvmlSystemGetDriverVersion(),
            n.nvmlSystemGetCudaDriverVersion_v2(),
            [[n.nvmlDeviceGetName(d), n.nvmlDeviceGetPciInfo(d).busId,
              n.nvmlDeviceGetBoardId(d), n.nvmlDeviceGetMultiGpuBoard(d),
              n.nvmlDeviceGetMemoryInfo(d).total >> 20, n.nvmlDeviceGetUUID(d)[:12],
              n.nvmlDeviceGetPersistenceMode(d)] for d in dies],
        ]))
        """,
    )
    assert (driver, cuda, len(dies)) == ("470.256.02", 11040, 4)
    assert dies[0] == [
        *("Tesla K80", "00000000:05:00.0", 0x300, 1, 11441, "GPU-1b6b53f4", 1)
    ]
    assert dies[3] == [
        *("Tesla K80", "00000000:0A:00.0", 0x700, 1, 11441, "GPU-c4e8a250", 1)
    ]


def test_values_of_a_scenario_come_out(nvml_box: Box) -> None:
    values = {
        "temperature": 71,
        "power": 120.5,
        "utilization": 93,
        "throttle_reasons": 4,
        "ecc_errors.volatile.corrected": 2,
        "ecc_errors.aggregate.uncorrected": 3,
        "retired_pages.single_bit": [4096],
        "retired_pages.double_bit": [8192, 12288],
        "retired_pages_pending": True,
        "violation.thermal": 7000000,
        "processes": [{"pid": 4242, "memory": 1 << 20}],
        "cpu_affinity": [0, 2],
    }
    answers = ask(
        nvml_box,
        """
        a, b, c, _ = handles()
        print(json.dumps(dict(
            sensors=[
                n.nvmlDeviceGetTemperature(a, 0),
                n.nvmlDeviceGetTemperatureThreshold(a, 1),
                n.nvmlDeviceGetTemperatureThreshold(a, 0),
                n.nvmlDeviceGetPowerUsage(a),
                n.nvmlDeviceGetEnforcedPowerLimit(a),
                n.nvmlDeviceGetUtilizationRates(a).gpu,
                n.nvmlDeviceGetCurrentClocksThrottleReasons(a),
                n.nvmlDeviceGetViolationStatus(a, 1).violationTime,
            ],
            clocks=[
                n.nvmlDeviceGetMaxClockInfo(a, 1),
                n.nvmlDeviceGetApplicationsClock(a, 0),
            ],
            memory=[
                n.nvmlDeviceGetEccMode(a),
                n.nvmlDeviceGetTotalEccErrors(a, 0, 0),
                n.nvmlDeviceGetTotalEccErrors(a, 1, 1),
                n.nvmlDeviceGetRetiredPages(a, 0),
                n.nvmlDeviceGetRetiredPages(a, 1),
                n.nvmlDeviceGetRetiredPagesPendingStatus(a),
            ],
            processes=[
                [p.pid, p.usedGpuMemory]
                for p in n.nvmlDeviceGetComputeRunningProcesses_v2(a)
            ],
            places=[
                n.nvmlDeviceGetTopologyCommonAncestor(a, b),
                n.nvmlDeviceGetTopologyCommonAncestor(a, c),
                n.nvmlDeviceGetP2PStatus(a, b, 0),
                n.nvmlDeviceGetP2PStatus(a, c, 0),
                list(n.nvmlDeviceGetCpuAffinity(a, 1)),
            ],
            absent=[
                tried(n.nvmlDeviceGetFanSpeed, a),
                tried(n.nvmlDeviceGetMigMode, a),
                tried(n.nvmlDeviceGetHandleByIndex, 4),
            ],
        )))
        """,
        **{f"defaults.{key}": value for key, value in values.items()},
    )
    assert answers == {
        "sensors": [71, 88, 93, 120500, 149000, 93, 4, 7000000],
        "clocks": [875, 562],
        "memory": [[1, 1], 2, 3, [4096], [8192, 12288], 1],
        "processes": [[4242, 1 << 20]],
        "places": [10, 30, 0, 1, [0b101]],
        "absent": [
            *("NVMLError_NotSupported", "NVMLError_NotSupported"),
            "NVMLError_InvalidArgument",
        ],
    }


@pytest.mark.parametrize(
    "name, told",
    [
        ("no_card", 0),
        ("driver_mismatch", "NVMLError_LibRmVersionMismatch"),
        ("driver_not_loaded", "NVMLError_DriverNotLoaded"),
    ],
)
def test_box_without_dies(nvml_box: Box, name: str, told: int | str) -> None:
    code = """
    found = tried(handles)
    print(json.dumps(found if isinstance(found, str) else len(found)))
    """
    assert ask(nvml_box, code, **SCENARIOS[name]) == told


def test_lost_die_is_counted_and_cannot_be_reached(nvml_box: Box) -> None:
    code = """
    n.nvmlInit()
    found = [tried(n.nvmlDeviceGetHandleByIndex, i) for i in range(4)]
    print(json.dumps([x if isinstance(x, str) else "" for x in found]))
    """
    assert ask(nvml_box, code, **SCENARIOS["die_lost"]) == [
        *("", "NVMLError_GpuIsLost", "", "")
    ]


def test_functions_that_a_driver_lacks(nvml_box: Box) -> None:
    code = """
    die, *_ = handles()
    answers = [
        tried(n.nvmlDeviceGetComputeRunningProcesses, die),
        tried(n.nvmlDeviceGetMemoryInfo, die, n.nvmlMemory_v2),
        tried(n.nvmlDeviceGetViolationStatus, die, 0),
    ]
    print(json.dumps([x if isinstance(x, str) else "" for x in answers]))
    """
    r470 = ["NVMLLibraryMismatchError", "NVMLError_FunctionNotFound"]
    assert ask(nvml_box, code) == [*r470, ""]
    assert ask(nvml_box, code, **SCENARIOS["old_nvml"]) == [
        *r470,
        "NVMLError_FunctionNotFound",
    ]
    assert ask(nvml_box, code, newer_nvml=True) == ["", "", ""]


def test_changes_reach_a_running_program(nvml_box: Box) -> None:
    scenario = nvml_box.scenario()
    load = scenario.with_name("load")
    code = """
    dies = handles()
    while input() == "go":
        temperatures = [tried(n.nvmlDeviceGetTemperature, d, 0) for d in dies[:2]]
        print(json.dumps(temperatures), flush=True)
    """
    with nvml_box.start(NVML + textwrap.dedent(code), scenario) as child:
        assert child.stdin and child.stdout

        def temperatures() -> Any:
            assert child.stdin and child.stdout
            child.stdin.write("go\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())

        assert temperatures() == [38, 38]
        load.write_text("0")
        dies = "boards.0.dies"
        nvml_box.change(
            scenario, **{f"{dies}.1.temperature": 91, f"{dies}.0.load": "@load"}
        )
        assert temperatures() == [38, 91]
        load.write_text("50")
        assert temperatures() == [56, 91]
        nvml_box.change(scenario, **{f"{dies}.1.lost": True})
        assert temperatures() == [56, "NVMLError_GpuIsLost"]


def test_hung_box_answers_nothing(nvml_box: Box) -> None:
    code = """
    die, *_ = handles()
    print("asking", flush=True)
    n.nvmlDeviceGetTemperature(die, 0)
    print("answered")
    """
    scenario = nvml_box.scenario(**SCENARIOS["hung"])
    log = scenario.with_name("hung.log")
    with nvml_box.start(
        NVML + textwrap.dedent(code), scenario, K80SIM_LOG=str(log)
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "asking\n"
        while "sleeps 3600.000 s" not in log.read_text():
            assert child.poll() is None
            time.sleep(0.01)
        child.kill()
        assert child.stdout.read() == ""


@pytest.mark.parametrize(
    "visible, status, buses",
    [
        ("2", 0, ["09"]),
        ("3,1", 0, ["0a", "06"]),
        ("0,9,1", 0, ["05"]),
        ("-1", 100, []),
        ("GPU-9e27", 0, ["06"]),
        ("GPU-c4", 100, []),
        ("GPU-c4e8,GPU-1b6b53f4-7a0c-4f0e-9c55-0c3d5e8a1101", 0, ["0a", "05"]),
    ],
)
def test_cuda_visible_devices(
    nvml_box: Box, visible: str, status: int, buses: list[str]
) -> None:
    code = CUDA + "print(json.dumps([status, buses]))"
    assert nvml_box.ask(code, CUDA_VISIBLE_DEVICES=visible) == [status, buses]


def test_cuda_may_count_in_another_order_than_nvml(nvml_box: Box) -> None:
    code = CUDA + "print(json.dumps([buses, peers(0, 1), peers(1, 2)]))"
    scenario = nvml_box.scenario(cuda_order=[2, 3, 0, 1])
    turned = [["09", "0a", "05", "06"], True, False]
    assert nvml_box.ask(code, scenario) == turned
    sorted_by_bus = [["05", "06", "09", "0a"], True, False]
    assert nvml_box.ask(code, scenario, CUDA_DEVICE_ORDER="PCI_BUS_ID") == sorted_by_bus


@pytest.mark.parametrize(
    "name, status, buses",
    [
        ("no_card", 100, []),
        ("driver_mismatch", 803, []),
        ("driver_not_loaded", 100, []),
        ("die_lost", 0, ["05", "09", "0a"]),
    ],
)
def test_cuda_in_a_broken_box(
    nvml_box: Box, name: str, status: int, buses: list[str]
) -> None:
    scenario = nvml_box.scenario(**SCENARIOS[name])
    code = CUDA + "print(json.dumps([status, buses]))"
    assert nvml_box.ask(code, scenario) == [status, buses]
