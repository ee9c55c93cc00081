"""Every fault alone gives exactly its own finding, with the command that mends it."""

from __future__ import annotations

import dataclasses

import pytest

from k80keras.machine.doctor.checks import CHECKS
from k80keras.machine.doctor.examine import doctor
from k80keras.machine.self_test import SelfTest, Trial, hash_of
from k80keras.machine.system import (
    CUDALibrary,
    CUDAPackage,
    Die,
    KernelDriver,
    NVMLReading,
    PCIDevice,
    Process,
    System,
    TensorFlowBuild,
    TensorFlowRun,
)
from tests.machine.boxes import (
    ADDRESSES,
    GIB,
    change,
    die,
    healthy,
    with_dies,
)

BOX = healthy()
NO_DIES = NVMLReading(error="driver_not_loaded")
UBUNTU = change(
    BOX, "host", distribution="ubuntu", distribution_family=("ubuntu", "debian")
)
ROCKY = change(
    BOX,
    "host",
    distribution="rocky",
    distribution_version="8.9",
    distribution_family=("rocky", "rhel", "centos", "fedora"),
)
ARCH = change(BOX, "host", distribution="arch", distribution_family=("arch",))


def driver(box: System, **values) -> System:
    """Returns a box whose driver is another one, and does not reach the card."""
    return dataclasses.replace(box, driver=KernelDriver(**values), nvml=NO_DIES)


def older_driver(version: str) -> System:
    """Returns a box that works with another driver."""
    box = change(BOX, "driver", version=version)
    box = change(box, "libcuda", version=version)
    return change(box, "nvml", driver_version=version)


HANGS = Trial("collective", "hung", "all-reduce hung for 20 s")


def tried(*trials: Trial, **values) -> System:
    """Returns a box whose first two dies have been tried together."""
    facts = {"driver": "470.256.02", "tensorflow": "2.14.1", "keras": "2.14.0"}
    dies = tuple(hash_of(die(index).uuid or "") for index in (0, 1))
    verdict = SelfTest(("GPU:0", "GPU:1"), None, dies=dies, facts=facts)
    verdict = dataclasses.replace(verdict.with_trials(trials, 20.0), **values)
    return healthy(self_test=(verdict,))


def pci(**values) -> tuple[PCIDevice, ...]:
    """Returns the four dies with other values."""
    return tuple(
        PCIDevice(
            **{"address": a, "device_id": 0x102D, "memory_window": True, **values}
        )
        for a in ADDRESSES
    )


def environ(**variables: str) -> System:
    """Returns a healthy box with environment variables."""
    return healthy(environ=variables)


# Fault, box, the only problem it may show (state and check), a piece of the command.
TABLE = {
    # Kind 15: the card in the case.
    "no memory windows": (
        dataclasses.replace(driver(BOX, installed=True), pci=pci(memory_window=False)),
        "error memory_window",
        "systemctl reboot --firmware-setup",
    ),
    "a die fell off the bus": (
        change(BOX, "nvml", dies=(die(0), Die(1, lost=True), die(2), die(3))),
        "error all_dies",
        "dmesg",
    ),
    "a die that NVML does not count": (
        change(BOX, "nvml", dies=tuple(map(die, range(3)))),
        "error all_dies",
        "dmesg",
    ),
    "few lanes": (with_dies(pcie_width=4), "warning link", "lspci -vv -s 0000:09:00.0"),
    # Kind 1: the driver.
    "no driver, Debian": (
        driver(BOX),
        "error kernel_driver",
        "apt-get install linux-headers-amd64 nvidia-tesla-470-driver",
    ),
    "no driver, Ubuntu": (
        driver(UBUNTU),
        "error kernel_driver",
        "sudo apt-get install nvidia-driver-470-server",
    ),
    "no driver, Rocky": (
        driver(ROCKY),
        "error kernel_driver",
        "sudo dnf module install nvidia-driver:470-dkms",
    ),
    "no driver, Arch": (
        driver(ARCH),
        "error kernel_driver",
        "sudo sh NVIDIA-Linux-x86_64-470.256.02.run",
    ),
    "driver too new": (
        driver(BOX, version="535.183.01", open_source=False),
        "error kernel_driver",
        "purge",
    ),
    "driver too new, Rocky": (
        driver(ROCKY, version="550.54.14", open_source=False),
        "error kernel_driver",
        "dnf remove",
    ),
    "driver too old": (
        older_driver("450.203.08"),
        "error kernel_driver",
        "nvidia-tesla-470-driver",
    ),
    "driver older, not known to fail": (
        older_driver("460.106.00"),
        "warning kernel_driver",
        "nvidia-tesla-470-driver",
    ),
    "open kernel module": (
        driver(BOX, version="535.183.01", open_source=True),
        "error kernel_driver",
        "nvidia-tesla-470-driver",
    ),
    "nouveau": (
        dataclasses.replace(
            driver(BOX, nouveau=True), pci=pci(kernel_driver="nouveau")
        ),
        "error kernel_driver",
        "systemctl reboot",
    ),
    "reserved for a guest": (
        dataclasses.replace(driver(BOX), pci=pci(kernel_driver="vfio-pci")),
        "error kernel_driver",
        "vfio",
    ),
    "new kernel without a module": (
        driver(BOX, installed=False, dkms_versions=("470.256.02",)),
        "error kernel_driver",
        "linux-headers-6.1.0-18-amd64 && sudo dkms autoinstall -k 6.1.0-18-amd64",
    ),
    "module not loaded": (
        driver(BOX, installed=True),
        "error kernel_driver",
        "sudo modprobe nvidia",
    ),
    "module not signed": (
        change(driver(BOX, installed=True), "host", secure_boot=True),
        "error kernel_driver",
        "mokutil --import",
    ),
    "container without the card": (
        change(driver(BOX), "host", container=True),
        "error kernel_driver",
        "k80keras doctor    # outside of this container",
    ),
    "driver too new to stay loaded": (
        dataclasses.replace(
            driver(BOX, installed=True, dkms_versions=("535.183.01",)),
            libcuda=CUDALibrary("/usr/lib/libcuda.so.535.183.01", "535.183.01"),
        ),
        "error kernel_driver",
        "sudo apt-get purge --autoremove '^nvidia-(dkms|driver|kernel).*'",
    ),
    "libraries were updated": (
        healthy(nvml=NVMLReading(error="version_mismatch")),
        "error nvml",
        "sudo systemctl reboot",
    ),
    "container without utilities": (
        change(
            healthy(nvml=NVMLReading(error="library_not_found")), "host", container=True
        ),
        "error nvml",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    "no libcuda": (
        healthy(libcuda=CUDALibrary()),
        "error libcuda",
        "nvidia-tesla-470-driver",
    ),
    "cuda-compat": (
        healthy(
            libcuda=CUDALibrary(
                "/usr/local/cuda/compat/libcuda.so.535.54.03", "535.54.03", (12, 2)
            )
        ),
        "error libcuda",
        "apt-get remove 'cuda-compat-*' && sudo ldconfig",
    ),
    "cuda-compat on the path": (
        healthy(
            libcuda=CUDALibrary(
                "/opt/compat/libcuda.so.535.54.03", "535.54.03", (12, 2)
            ),
            environ={"LD_LIBRARY_PATH": "/opt/compat:/opt/lib"},
        ),
        "error libcuda",
        "export LD_LIBRARY_PATH=/opt/lib",
    ),
    "stub of libcuda": (
        healthy(
            libcuda=CUDALibrary("/opt/cuda/stubs/libcuda.so"),
            environ={"LD_LIBRARY_PATH": "/opt/lib:/opt/cuda/stubs"},
        ),
        "error libcuda",
        "export LD_LIBRARY_PATH=/opt/lib",
    ),
    "no binding for NVML": (
        healthy(nvml=NVMLReading(error="nvidia-ml-py is not installed")),
        "warning nvml",
        "pip install nvidia-ml-py",
    ),
    # Kind 1: the software.
    "Python too new": (
        change(BOX, "host", python=(3, 12, 1)),
        "error python",
        "uv venv --seed --python 3.11 k80",
    ),
    "no TensorFlow": (
        healthy(tensorflow=TensorFlowBuild(), tensorflow_run=None),
        "error tensorflow",
        'pip install "k80keras[k80]"',
    ),
    "TensorFlow too new": (
        healthy(
            tensorflow=TensorFlowBuild(
                "2.15.1",
                ("tensorflow",),
                "/tf",
                True,
                (12, 2),
                "8",
                ((5, 0), (6, 0), (7, 0), (7, 5), (8, 0)),
                ((8, 0),),
            )
        ),
        "error tensorflow_code",
        'pip install "k80keras[k80]"',
    ),
    "TensorFlow for the CPU": (
        change(BOX, "tensorflow", cuda_build=False, sass=(), ptx=()),
        "error tensorflow_code",
        "k80keras[k80]",
    ),
    "TensorFlow does not load": (
        healthy(tensorflow_run=TensorFlowRun(error="ImportError: libfoo.so.1")),
        "error tensorflow",
        "--force-reinstall",
    ),
    "two TensorFlows": (
        change(BOX, "tensorflow", packages=("tensorflow", "tensorflow-cpu")),
        "warning tensorflow",
        "pip uninstall --yes tensorflow tensorflow-cpu",
    ),
    "TensorFlow sees no GPU": (
        healthy(tensorflow_run=TensorFlowRun()),
        "error tensorflow_devices",
        "k80keras[k80]",
    ),
    "cuDNN without Kepler": (
        change(
            BOX,
            "cuda_tools",
            packages=(
                CUDAPackage("nvidia-cudnn-cu11", "8.9.6.50"),
                CUDAPackage("nvidia-cuda-nvcc-cu11", "11.8.89"),
            ),
        ),
        "error cuda_libraries",
        'pip install "nvidia-cudnn-cu11==8.7.0.84"',
    ),
    "cuDNN too old": (
        change(
            BOX, "cuda_tools", packages=(CUDAPackage("nvidia-cudnn-cu11", "8.5.0.96"),)
        ),
        "error cuda_libraries",
        "nvidia-cudnn-cu11==8.7.0.84",
    ),
    "CUDA 12 among the wheels": (
        change(
            BOX,
            "cuda_tools",
            packages=BOX.cuda_tools.packages
            + (CUDAPackage("nvidia-cudnn-cu12", "8.9.4.25"),),
        ),
        "error cuda_libraries",
        "pip uninstall --yes nvidia-cudnn-cu12",
    ),
    "cuDNN without nvrtc": (
        change(BOX, "cuda_tools", nvrtc_link=False),
        "warning nvrtc",
        "ln -s ../../cuda_nvrtc/lib/libnvrtc.so.11.2 /nvidia/cudnn/lib/libnvrtc.so",
    ),
    # Kind 6: XLA.
    "ptxas too new": (
        change(
            BOX, "cuda_tools", ptxas="/usr/local/cuda/bin/ptxas", ptxas_version=(12, 2)
        ),
        "warning xla_tools",
        'eval "$(k80keras env)"',
    ),
    "no libdevice": (
        change(BOX, "cuda_tools", libdevice=None),
        "warning xla_tools",
        "nvidia-cuda-nvcc-cu11==11.8.89",
    ),
    "XLA of everything": (
        environ(TF_XLA_FLAGS="--tf_xla_auto_jit=2"),
        "error xla_flags",
        "unset TF_XLA_FLAGS",
    ),
    "XLA's folder is gone": (
        environ(XLA_FLAGS="--xla_gpu_cuda_data_dir=/not/there"),
        "warning xla_flags",
        "unset XLA_FLAGS",
    ),
    "cuda_malloc_async": (
        environ(TF_GPU_ALLOCATOR="cuda_malloc_async"),
        "error allocator",
        "unset TF_GPU_ALLOCATOR",
    ),
    "all dies hidden": (
        environ(CUDA_VISIBLE_DEVICES=""),
        "warning visible_devices",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "a die that is not there": (
        environ(CUDA_VISIBLE_DEVICES="1,GPU-00000003,7,0"),
        "error visible_devices",
        "export CUDA_VISIBLE_DEVICES=1,GPU-00000003",
    ),
    "a die named twice": (
        environ(CUDA_VISIBLE_DEVICES="1,GPU-00000001,0"),
        "error visible_devices",
        "export CUDA_VISIBLE_DEVICES=1,0",
    ),
    "TensorFlow sees none of the dies named": (
        healthy(
            environ={"CUDA_VISIBLE_DEVICES": "0,1"}, tensorflow_run=TensorFlowRun()
        ),
        "error tensorflow_devices",
        "k80keras[k80]",
    ),
    "a UUID that fits two dies": (
        environ(CUDA_VISIBLE_DEVICES="0,GPU-0000"),
        "error visible_devices",
        "export CUDA_VISIBLE_DEVICES=0",
    ),
    # Kind 9: heat, power, memory.
    "too hot": (
        with_dies(
            temperature_celsius=90,
            throttle_reasons=("hw_slowdown", "sw_thermal_slowdown"),
        ),
        "error heat",
        "sudo nvidia-smi -i 2 -ac 2505,562",
    ),
    "nearly too hot": (
        with_dies(temperature_celsius=84),
        "warning heat",
        "-ac 2505,562",
    ),
    "slowed down by heat alone": (
        with_dies(temperature_celsius=70, throttle_reasons=("hw_thermal_slowdown",)),
        "error heat",
        "-ac 2505,562",
    ),
    "power brake": (
        with_dies(throttle_reasons=("hw_slowdown", "hw_power_brake_slowdown")),
        "error power",
        "nvidia-smi -i 2 -q -d POWER,PERFORMANCE",
    ),
    "power cap": (
        with_dies(power_limit_watts=100.0),
        "warning power",
        "sudo nvidia-smi -i 2 -pl 149",
    ),
    "memory errors": (
        with_dies(
            ecc_uncorrected_volatile=2,
            retired_pages_double_bit=2,
            retired_pages_pending=True,
        ),
        "error memory_errors",
        "sudo systemctl reboot",
    ),
    "retired pages": (
        with_dies(retired_pages_double_bit=2),
        "warning memory_errors",
        "PAGE_RETIREMENT",
    ),
    "clocks held at base": (
        with_dies(auto_boost=False),
        "warning clocks",
        "nvidia-smi -i 2 -ac 2505,875",
    ),
    # Kind 13: slow start.
    "persistence mode off": (
        with_dies(persistence_mode=False),
        "warning persistence",
        "sudo nvidia-smi -pm 1",
    ),
    "another program": (
        with_dies(memory_used_bytes=9 * GIB, processes=(Process(4242, 9 * GIB),)),
        "warning others",
        "k80keras env",
    ),
    # Kind 2: dies that hang or corrupt.
    "small /dev/shm": (
        change(BOX, "host", shm_bytes=64 << 20),
        "warning shared_memory",
        "mount -o remount,size=1G",
    ),
    "small /dev/shm in a container": (
        change(BOX, "host", shm_bytes=64 << 20, container=True),
        "warning shared_memory",
        "docker run --shm-size=1g",
    ),
    "IOMMU": (
        change(BOX, "host", iommu="translated"),
        "warning peer_to_peer",
        "export NCCL_P2P_DISABLE=1",
    ),
    "ACS": (
        healthy(pci=pci(kernel_driver="nvidia", link_redirected=True)),
        "warning peer_to_peer",
        "NCCL_P2P_DISABLE=1",
    ),
    "too many peers": (
        dataclasses.replace(
            change(BOX, "nvml", dies=tuple(map(die, range(10)))),
            pci=None,
            tensorflow_run=None,
        ),
        "warning peers",
        "export CUDA_VISIBLE_DEVICES=GPU-00000000",
    ),
    "self-test: NCCL hangs": (
        tried(HANGS, Trial("hierarchical_copy", "ok")),
        "warning self_test",
        "export NCCL_P2P_DISABLE=1",
    ),
    "self-test: damaged copies though NCCL goes through the host": (
        dataclasses.replace(
            tried(Trial("collective", "wrong", "a copy arrived damaged")),
            environ={"NCCL_P2P_DISABLE": "1"},
        ),
        "warning self_test",
        "reboot",
    ),
}


@pytest.mark.parametrize("fault", TABLE)
def test_a_fault_gives_its_own_finding_and_no_other(fault):
    system, problem, command = TABLE[fault]

    problems = doctor(system).problems

    assert [f"{found.state} {found.check}" for found in problems] == [problem]
    assert command in problems[0].remedy
    assert problems[0].title and problems[0].why


def test_healthy_box_has_no_finding():
    diagnosis = doctor(BOX)

    assert diagnosis.problems == () and diagnosis.exit_code == 0
    assert {finding.check for finding in diagnosis.findings} == {
        check.name for check in CHECKS
    }


def test_every_check_can_fail():
    failing = {problem.split(" ")[1] for _, problem, _ in TABLE.values()}

    # `card` tells what there is and judges nothing.
    assert failing == {check.name for check in CHECKS} - {"card"}


def test_machine_without_a_gpu():
    system = System(
        host=BOX.host, pci=(), tensorflow=BOX.tensorflow, tensorflow_run=TensorFlowRun()
    )
    assert doctor(system).problems == ()
    # There TensorFlow's absence is no error.
    (problem,) = doctor(System(host=BOX.host, pci=())).problems
    assert problem.state == "warning"
    assert problem.remedy == 'pip install "k80keras[tensorflow]"'


@pytest.mark.parametrize(
    "source", ["pci", "nvml", "host", "tensorflow_run", "cuda_tools"]
)
def test_no_conclusion_is_drawn_from_what_could_not_be_read(source):
    nothing = getattr(System(), source)
    system = dataclasses.replace(BOX, **{source: nothing}, failures={source: "hung"})

    (problem,) = doctor(system).problems

    assert problem.check == source and "hung" in problem.title and problem.remedy
    # A driver that does not answer trains nothing.
    assert problem.state == ("error" if source == "nvml" else "warning")


def test_a_crash_in_one_check_is_contained():
    # A temperature that is no number: NVML promises one.
    system = with_dies(temperature_celsius="hot", persistence_mode=False)

    problems = {found.check: found for found in doctor(system).problems}

    assert "the check itself failed: TypeError" in problems["heat"].title
    assert problems["heat"].remedy == "k80keras probe > probe.json"
    assert problems["persistence"].state == "warning"


@pytest.mark.parametrize(
    "capability, sass, ptx, problem",
    [
        ((7, 0), ((6, 0), (7, 0)), ((8, 0),), None),
        ((8, 6), ((6, 0), (8, 0)), ((8, 0),), None),
        ((9, 0), ((6, 0), (8, 0)), ((8, 0),), "warning export CUDA_CACHE_MAXSIZE"),
        ((5, 2), ((6, 0), (8, 0)), ((8, 0),), "error pip install"),
    ],
)
def test_code_for_other_gpus(capability, sass, ptx, problem):
    other = die(0, name="Another GPU", compute_capability=capability)
    system = change(BOX, "tensorflow", sass=sass, ptx=ptx)
    system = dataclasses.replace(
        system,
        pci=(PCIDevice(ADDRESSES[0], 0x1DB6, "nvidia", True),),
        nvml=NVMLReading(driver_version="535.54.03", dies=(other,)),
        libcuda=CUDALibrary("/lib/libcuda.so.535.54.03", "535.54.03"),
        driver=KernelDriver("535.54.03"),
    )

    found = doctor(system).problems

    assert [f.check for f in found] == (["tensorflow_code"] if problem else [])
    if problem:
        assert f"{found[0].state} {found[0].remedy}".startswith(problem)


GEFORCE = PCIDevice("0000:81:00.0", 0x2684, None, True)
NOT_A_FAULT = {
    "a container with two of four dies": change(
        change(BOX, "host", container=True), "nvml", dies=(die(0), die(1))
    ),
    "a card too new for R470": dataclasses.replace(BOX, pci=(*BOX.pci, GEFORCE)),
    "a die given to a guest": dataclasses.replace(
        change(BOX, "nvml", dies=tuple(map(die, range(3)))),
        pci=(*BOX.pci[:3], dataclasses.replace(BOX.pci[3], kernel_driver="vfio-pci")),
    ),
    "dies that a batch system closed": change(
        BOX,
        "nvml",
        dies=(die(0), *(Die(n, error="no_permission") for n in range(1, 4))),
    ),
    "an NVML without addresses": change(
        BOX, "nvml", dies=tuple(die(n, pci_bus_id=None) for n in range(4))
    ),
    "a list that ends in a comma": healthy(
        environ={"CUDA_VISIBLE_DEVICES": "0,1,"},
        tensorflow_run=TensorFlowRun(gpus=("/GPU:0", "/GPU:1")),
    ),
    "a desktop's card without persistence mode": with_dies(
        name="NVIDIA GeForce GTX 980", persistence_mode=False, power_limit_watts=100.0
    ),
    "one die of a K80, in the cloud": dataclasses.replace(
        change(BOX, "nvml", dies=(die(0),)),
        pci=BOX.pci[:1],
        tensorflow_run=TensorFlowRun(gpus=("/GPU:0",)),
    ),
}


@pytest.mark.parametrize("case", NOT_A_FAULT)
def test_what_is_no_fault_gives_no_finding(case):
    assert doctor(NOT_A_FAULT[case]).problems == ()


def test_newer_libcuda_is_right_for_newer_cards():
    system = dataclasses.replace(
        BOX,
        pci=(dataclasses.replace(GEFORCE, kernel_driver="nvidia"),),
        nvml=NVMLReading(dies=(die(0, name="T4", pci_bus_id="0000:81:00.0"),)),
        libcuda=CUDALibrary("/usr/local/cuda/compat/libcuda.so.535.54.03", "535.54.03"),
    )

    assert "libcuda" not in {found.check for found in doctor(system).problems}


def test_root_needs_no_sudo_and_may_have_none():
    system = change(with_dies(persistence_mode=False), "host", root=True)

    assert doctor(system).problems[0].remedy == "nvidia-smi -pm 1"


def test_card_that_needs_the_newer_driver_is_named():
    box = older_driver("535.54.03")
    dies = (*BOX.nvml.dies, die(4, name="H100", compute_capability=(9, 0)))
    (found, *_) = doctor(change(box, "nvml", dies=dies)).problems

    assert found.check == "kernel_driver" and "The H100 needs a later one" in found.why
