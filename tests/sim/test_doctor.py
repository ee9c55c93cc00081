"""Each simulated machine gives exactly its expected findings.

What NVML and the loader tell is real; `/proc` and `/sys` are made-up files. The
whole box, with the real TensorFlow 2.14.1, is examined in lane k80-sim.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from k80keras.machine.doctor.examine import doctor
from k80keras.machine.probe import probe
from tests.machine import boxes, made_up
from tests.sim.scenario import SCENARIOS

# Scenario -> state and check, a piece of the command.
EXPECTED = {
    "healthy": [],
    "die_lost": [("error all_dies", "sudo systemctl reboot")],
    "hot": [("error heat", "sudo nvidia-smi -i 2 -ac 2505,562")],
    "ecc_faults": [("error memory_errors", "sudo systemctl reboot")],
    "old_nvml": [],
    "driver_mismatch": [("error nvml", "sudo systemctl reboot")],
    "driver_not_loaded": [("error nvml", "sudo modprobe nvidia")],
    "hung": [("error nvml", "sudo dmesg")],
    "no_power": [("error all_dies", "sudo systemctl poweroff")],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The kernel's files of a healthy box."""
    return str(made_up.healthy_box(tmp_path_factory.mktemp("healthy")))


def summary(diagnosis):
    return [f"{found.state} {found.check}" for found in diagnosis.problems]


def examine(box, root, scenario, **environ):
    """Examines the hardware of a box; its software is as it should be."""
    variables = {**box.environ(box.scenario(**SCENARIOS[scenario])), **environ}
    hardware = ("host", "pci", "driver", "libcuda", "nvml")
    system = probe(hardware, root=root, environ=variables)
    software = boxes.healthy()
    return doctor(
        dataclasses.replace(
            system,
            host=dataclasses.replace(system.host, shm_bytes=8 << 30, root=False),
            tensorflow=software.tensorflow,
            tensorflow_run=software.tensorflow_run,
            cuda_tools=software.cuda_tools,
        )
    )


@pytest.mark.parametrize("scenario", EXPECTED)
def test_simulated_machines(nvml_box, root, scenario):
    diagnosis = examine(nvml_box, root, scenario)

    assert summary(diagnosis) == [problem for problem, _ in EXPECTED[scenario]]
    for found, (_, command) in zip(diagnosis.problems, EXPECTED[scenario]):
        assert command in found.remedy
    worst = {"error": 2, "warning": 1}
    states = [found.state for found in diagnosis.problems]
    assert diagnosis.exit_code == max((worst[state] for state in states), default=0)


def test_machine_without_a_card(nvml_box, tmp_path):
    root = made_up.write(tmp_path, {"proc/driver/nvidia/version": made_up.PROPRIETARY})
    (root / "sys/bus/pci/devices").mkdir(parents=True)

    diagnosis = examine(nvml_box, str(root), "no_card")

    assert summary(diagnosis) == []
    assert "No NVIDIA GPU" in str(diagnosis)


def test_mismatch_is_told_without_a_bus(nvml_box, tmp_path):
    assert summary(examine(nvml_box, str(tmp_path), "driver_mismatch")) == [
        "error nvml"
    ]


def test_hardware_is_told_in_one_line(nvml_box, root):
    first = str(examine(nvml_box, root, "healthy")).splitlines()[0]

    assert first.startswith("4 x Tesla K80 on 2 boards; driver 470.256.02; TensorFlow")


def test_everything_about_a_box_is_read(nvml_box, root):
    system = examine(nvml_box, root, "healthy").system

    assert [die.pci_bus_id for die in system.dies] == [d.address for d in system.pci]
    assert system.nvml.cuda_version == system.libcuda.cuda_version == (11, 4)
    assert system.libcuda.version == system.driver.version == "470.256.02"
    assert system.failures == {}


# The whole box.


@pytest.fixture
def nvrtc_link(gpu_box):
    """The link that a user makes once, after installing the wheels."""
    link = gpu_box.nvidia / "cudnn" / "lib" / "libnvrtc.so"
    link.symlink_to("../../cuda_nvrtc/lib/libnvrtc.so.11.2")
    yield link
    link.unlink()


def test_healthy_box_with_tensorflow_has_no_finding(gpu_box, root, nvrtc_link):
    diagnosis = doctor(root=root, environ=gpu_box.environ())

    assert summary(diagnosis) == []
    run = diagnosis.system.tensorflow_run
    assert len(run.gpus) == 4 and set(run.capabilities) == {(3, 7)}
    assert diagnosis.system.cuda_tools.ptxas_version == (11, 8)


def test_environment_of_the_whole_box(gpu_box, root, nvrtc_link, tmp_path):
    (tmp_path / "ptxas").write_text("#!/bin/sh\necho 'release 12.2, V12.2.140'\n")
    (tmp_path / "ptxas").chmod(0o755)
    environ = gpu_box.environ(gpu_box.scenario(**SCENARIOS["die_lost"]))
    environ["PATH"] = f"{tmp_path}:{environ['PATH']}"
    environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"

    diagnosis = doctor(root=root, environ=environ)

    assert summary(diagnosis) == [
        "error all_dies",
        "warning xla_tools",
        "error allocator",
    ]
    # TensorFlow lists the dies that are left.
    assert len(diagnosis.system.tensorflow_run.gpus) == 3


def test_remedies_mend(gpu_box, tmp_path):
    """A fresh installation lacks one link; the script makes it."""
    link = gpu_box.nvidia / "cudnn" / "lib" / "libnvrtc.so"
    script = tmp_path / "fix.sh"

    def run(*options):
        return subprocess.run(
            [sys.executable, "-m", "k80keras", "doctor", "--json", *options],
            env=gpu_box.environ(),
            capture_output=True,
            text=True,
            timeout=120,
        )

    first = run(f"--fix_script={script}")
    found = [f for f in json.loads(first.stdout)["findings"] if f["state"] == "warning"]
    assert first.returncode == 1 and [f["check"] for f in found] == ["nvrtc"]
    try:
        subprocess.run([str(script)], check=True, timeout=60)
        assert link.exists()
        second = run()
        assert second.returncode == 0, second.stdout
        assert "GPU-1b6b53f4" not in second.stdout
    finally:
        link.unlink(missing_ok=True)
