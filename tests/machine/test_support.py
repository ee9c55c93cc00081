"""The support table, against setup.cfg and the wheels that are installed."""

from __future__ import annotations

import configparser
from importlib import metadata
from pathlib import Path

import pytest

from k80keras.machine import support
from k80keras.machine.fatbin import architectures
from k80keras.machine.hardware import GK210

K80 = GK210.compute_capability
_SETUP = Path(__file__).resolve().parents[2] / "setup.cfg"


@pytest.mark.parametrize(
    "capability, sass, ptx, runs",
    [
        ((3, 7), [(3, 5)], [], True),
        ((3, 7), [(3, 7)], [], True),
        ((3, 5), [(3, 7)], [], False),
        ((3, 7), [(5, 0), (6, 0)], [(8, 0)], False),
        ((3, 7), [], [(3, 5)], True),
        ((3, 7), [(8, 0)], [(3, 0)], True),
        ((8, 6), [(8, 0)], [], True),
        ((9, 0), [(8, 0)], [], False),
        ((9, 0), [(8, 0)], [(8, 0)], True),
        ((10, 0), [], [(9, 0)], True),
        ((3, 7), [], [], False),
    ],
)
def test_runs_on(
    capability: tuple[int, int],
    sass: list[tuple[int, int]],
    ptx: list[tuple[int, int]],
    runs: bool,
) -> None:
    assert support.runs_on(capability, sass, ptx) is runs


@pytest.mark.parametrize(
    "version, capability, supported",
    [
        ("8.5.0.96", (3, 7), True),
        ("8.7.0.84", (3, 7), True),
        ("8.8.0.121", (3, 7), False),
        ("8.10", (3, 7), False),
        ("9.1.0.70", (3, 7), False),
        ("9", (3, 7), False),
        ("8", (3, 7), True),
        ("8.7.0.84", (3, 0), False),
        ("9.1.0.70", (7, 0), True),
    ],
)
def test_cudnn(version: str, capability: tuple[int, int], supported: bool) -> None:
    assert support.cudnn_supports(version, capability) is supported


def test_last_tensorflow_is_the_last_with_code_for_the_card() -> None:
    running = [
        wheel.version
        for wheel in support.TENSORFLOW_WHEELS
        if support.runs_on(K80, wheel.sass, wheel.ptx)
    ]
    row = next(
        wheel
        for wheel in support.TENSORFLOW_WHEELS
        if wheel.version == support.LAST_TENSORFLOW
    )

    assert running == ["2.10.1", "2.11.1", "2.12.1", "2.13.1", "2.14.1"]
    assert running[-1] == support.LAST_TENSORFLOW
    assert support.TENSORFLOW_PYTHON == row.python == ((3, 9), (3, 11))
    assert support.OLDEST_CUDNN == row.cudnn_version
    assert row.cuda_version < support.FIRST_CUDA_WITHOUT_KEPLER


def test_last_driver() -> None:
    kepler = [row.branch for row in support.DRIVER_BRANCHES if row.kepler]
    assert max(kepler) == support.LAST_DRIVER_BRANCH
    assert support.LAST_DRIVER.startswith(f"{support.LAST_DRIVER_BRANCH}.")


def test_cudnn_function_agrees_with_the_table() -> None:
    for row in support.CUDA_LIBRARIES:
        for version in row.versions:
            if row.package == "nvidia-cudnn-cu11":
                supported = support.cudnn_supports(version, K80)
                assert supported == (row.oldest <= K80), version


def test_pins_are_those_of_the_extra() -> None:
    if not _SETUP.exists():
        pytest.skip("not a checkout")
    parser = configparser.ConfigParser()
    parser.read(_SETUP)
    extras = parser["options.extras_require"]
    lines = f'{extras["k80"]}\n{extras["k80-cpu"]}'.splitlines()

    pinned = dict(line.split("==") for line in lines if "==" in line)
    assert support.PINS == pinned


def test_pins_hold_code_for_the_card() -> None:
    oldest = {
        (row.package, version): row.oldest
        for row in support.CUDA_LIBRARIES
        for version in row.versions
    }
    # The others hold no device code.
    pinned = {pin for pin in support.PINS.items() if pin in oldest}
    assert len(pinned) == 7
    assert all(oldest[pin] <= K80 for pin in pinned)


def test_installed_wheels_hold_what_the_table_says() -> None:
    compared = 0
    for row in support.CUDA_LIBRARIES:
        try:
            package = metadata.distribution(row.package)
        except metadata.PackageNotFoundError:
            continue
        sass = {
            capability
            for file in package.files or ()
            if ".so" in file.name
            for capability in architectures(str(file.locate()))[0]
        }
        if package.version in row.versions and sass:
            assert min(sass) == row.oldest, row
            compared += 1
    if not compared:
        pytest.skip("none of these wheels is installed: lane k80-sim")
