"""Reading the kernel's files, from made-up machines and from this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from k80keras.machine.sources.child import ask_python, run
from k80keras.machine.sources.cuda_tools import read_cuda_tools
from k80keras.machine.sources.host import read_host
from k80keras.machine.sources.kernel_driver import read_kernel_driver
from k80keras.machine.sources.libcuda import read_libcuda
from k80keras.machine.sources.pci import read_pci
from k80keras.machine.sources.tensorflow_build import read_tensorflow_build
from k80keras.machine.system import CUDALibrary
from tests.machine import made_up

MODULES = f"lib/modules/{made_up.KERNEL}/modules.dep"


def test_empty_machine_is_one_about_which_nothing_is_known(tmp_path):
    host = read_host(tmp_path, {})

    assert host.distribution is None and host.distribution_family == ()
    assert host.memory_bytes is None and host.cpu_limit is None
    assert host.shm_bytes is None and host.container is False
    assert host.iommu == "off" and host.secure_boot is None
    assert host.python == sys.version_info[:3]
    assert read_pci(tmp_path) is None
    driver = read_kernel_driver(tmp_path)
    assert driver.version is None and driver.installed is None


def test_this_machine_is_read_without_an_error():
    from pathlib import Path

    host = read_host(Path("/"), os.environ)

    assert host.kernel == os.uname().release
    assert host.cpu_count == len(os.sched_getaffinity(0))
    assert host.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    read_pci(Path("/"))
    read_kernel_driver(Path("/"))


def test_distribution_and_its_family(tmp_path):
    text = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\n# x\n'
    made_up.write(tmp_path, {"usr/lib/os-release": text + 'VERSION_ID="8.9"\n'})

    host = read_host(tmp_path, {})

    assert host.distribution == "rocky" and host.distribution_version == "8.9"
    assert host.distribution_family == ("rocky", "rhel", "centos", "fedora")


@pytest.mark.parametrize(
    "files, cpus, memory",
    [
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "150000 100000",
                "sys/fs/cgroup/a/memory.max": "8589934592\n",
            },
            1.5,
            8 << 30,
        ),
        # The parent's limit holds as well.
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
            },
            2.0,
            None,
        ),
        # Inside a container the path is that of the host.
        (
            {
                "proc/self/cgroup": "0::/docker/abc\n",
                "sys/fs/cgroup/cpu.max": "50000 100000",
                "sys/fs/cgroup/memory.max": "1073741824\n",
            },
            0.5,
            1 << 30,
        ),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/cpu.max": "max 100000",
                "sys/fs/cgroup/memory.max": "max\n",
            },
            None,
            None,
        ),
        # Version 1: one hierarchy for each controller, -1 and 2**63 for no limit.
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job\n3:memory:/job\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2147483648\n",
            },
            3.0,
            2 << 30,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job\n3:memory:/job\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{2**63 - 4096}\n",
            },
            None,
            None,
        ),
    ],
)
def test_limits_of_cgroups(tmp_path, files, cpus, memory):
    host = read_host(made_up.write(tmp_path, files), {})

    assert (host.cpu_limit, host.memory_limit_bytes) == (cpus, memory)


@pytest.mark.parametrize(
    "types, expected",
    [
        ([], "off"),
        (["identity", "identity"], "passthrough"),
        (["identity", "DMA-FQ"], "translated"),
    ],
)
def test_iommu(tmp_path, types, expected):
    for number, kind in enumerate(types):
        name = f"sys/kernel/iommu_groups/{number}/type"
        made_up.write(tmp_path, {name: kind + "\n"})

    assert read_host(tmp_path, {}).iommu == expected


def test_containers_and_secure_boot(tmp_path):
    variable = (
        "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    )
    made_up.write(tmp_path, {variable: b"\x06\0\0\0\x01", "run/.containerenv": ""})

    host = read_host(tmp_path, {})

    assert host.secure_boot is True and host.container is True


def test_healthy_box_on_the_bus(tmp_path):
    devices = read_pci(made_up.healthy_box(tmp_path))

    addresses = [device.address for device in devices]
    assert addresses == ["0000:05:00.0", "0000:06:00.0", "0000:09:00.0", "0000:0a:00.0"]
    for device in devices:
        assert device.is_k80 and device.memory_window and device.numa_node == 0
        assert device.kernel_driver == "nvidia" and device.link_redirected is None


@pytest.mark.parametrize(
    "resource, expected",
    [
        (made_up.WINDOWS, True),
        (made_up.NO_WINDOW, False),
        # Given up by the kernel: nothing is left of the window.
        (
            made_up.WINDOWS.replace(
                "0x0000387800000000 0x0000387bffffffff 0x000000000014220c",
                "0x0000000000000000 0x0000000000000000 0x0000000000000000",
            ),
            False,
        ),
        ("", False),
    ],
)
def test_memory_windows(tmp_path, resource, expected):
    made_up.add_gpu(tmp_path, "0000:05:00.0", driver=None, resource=resource)

    (device,) = read_pci(tmp_path)

    assert device.memory_window is expected and device.kernel_driver is None


@pytest.mark.parametrize(
    "config, expected",
    [
        (made_up.acs_config(0b11101), True),
        (made_up.acs_config(0b1000), True),
        (made_up.acs_config(0b10001), False),
        (made_up.acs_config(0)[:64], None),  # what a user who is not root may read
        (bytes(4096), False),
        (b"\xff" * 4096, False),
        # A list that leads back to its own start.
        (bytes(256) + (1 | 0x100 << 20).to_bytes(4, "little") + bytes(3836), False),
    ],
)
def test_redirection_by_bridges(tmp_path, config, expected):
    made_up.add_gpu(tmp_path, "0000:05:00.0", bridge=config)

    (device,) = read_pci(tmp_path)

    assert device.link_redirected is expected


def test_other_vendors_and_sound_devices_are_no_gpus(tmp_path):
    made_up.add_gpu(tmp_path, "0000:05:00.0", device="0x1db6", numa_node="-1")
    place = tmp_path / "sys/bus/pci/devices"
    for address, vendor, kind in (
        ("0000:01:00.1", "0x10de", "0x040300"),
        ("0000:02:00.0", "0x1002", "0x030000"),
    ):
        made_up.write(place, {f"{address}/vendor": vendor, f"{address}/class": kind})

    (device,) = read_pci(tmp_path)

    assert device.device_id == 0x1DB6 and not device.is_k80 and device.numa_node is None


@pytest.mark.parametrize(
    "files, version, open_source, installed, dkms",
    [
        (
            {"proc/driver/nvidia/version": made_up.PROPRIETARY},
            "470.256.02",
            False,
            None,
            (),
        ),
        ({"proc/driver/nvidia/version": made_up.OPEN}, "535.54.03", True, None, ()),
        (
            {MODULES: "kernel/fbdev/nvidia/nvidiafb.ko: x\nupdates/nvidia-drm.ko: y\n"},
            None,
            None,
            False,
            (),
        ),
        (
            {MODULES: "updates/dkms/nvidia-tesla-470.ko.xz: \n"},
            None,
            None,
            True,
            (),
        ),
        (
            {
                MODULES: "\n",
                "var/lib/dkms/nvidia-tesla-470/470.256.02/source": "",
                "var/lib/dkms/nvidia-tesla-470/kernel-5.10.0-amd64-x86_64/x": "",
            },
            None,
            None,
            False,
            ("470.256.02",),
        ),
    ],
)
def test_kernel_driver(tmp_path, files, version, open_source, installed, dkms):
    kernel = {"proc/sys/kernel/osrelease": made_up.KERNEL + "\n"}
    driver = read_kernel_driver(made_up.write(tmp_path, {**kernel, **files}))

    assert driver.version == version and driver.open_source is open_source
    assert driver.installed is installed and driver.dkms_versions == dkms
    assert driver.branch == (int(version[:3]) if version else None)


def test_nouveau(tmp_path):
    made_up.write(tmp_path, {"proc/modules": "video 1 2 nouveau,i915 -\n"})
    assert read_kernel_driver(tmp_path).nouveau is False
    made_up.write(tmp_path, {"proc/modules": "nouveau 1 0 - Live 0x0\n"})
    assert read_kernel_driver(tmp_path).nouveau is True


def test_rubbish_is_an_error_that_says_where(tmp_path):
    made_up.write(tmp_path, {"proc/driver/nvidia/version": "no driver today"})
    with pytest.raises(ValueError, match="/proc/driver/nvidia/version: 'no driver"):
        read_kernel_driver(tmp_path)


def test_libcuda_is_the_one_that_the_loader_finds(nvml_box, tmp_path):
    environ = nvml_box.environ()

    found = read_libcuda(environ, 10)

    assert found.path.startswith(os.path.realpath(nvml_box.libraries))
    assert found.version == "470.256.02" and found.cuda_version == (11, 4)
    assert found.error is None
    # First on the path, and no library.
    made_up.write(tmp_path, {"libcuda.so.1": "rubbish" * 99})
    environ["LD_LIBRARY_PATH"] = str(tmp_path)
    assert "invalid ELF header" in read_libcuda(environ, 10).error
    if not os.path.exists("/dev/nvidia0"):
        assert read_libcuda({"PATH": os.defpath}, 10) == CUDALibrary()


@pytest.mark.parametrize(
    "code, complaint",
    [
        ("import os; os.abort()", "crashed with SIGABRT"),
        ("import time; time.sleep(60)", "no answer within 0.5 s"),
        ("print('hello')", "answered rubbish: 'hello'"),
        ("pass", "answered rubbish: ''"),
        ("raise OSError('no such thing')", "OSError: no such thing"),
    ],
)
def test_what_a_child_can_do_wrong(code, complaint):
    with pytest.raises(RuntimeError, match=complaint):
        ask_python(code, os.environ, 0.5 if "sleep" in code else 20, "-S")


def test_what_a_program_prints():
    assert run(["sh", "-c", "echo $WORD"], {"WORD": "yes"}, 20) == "yes\n"


def site(folder, tensorflow, cudnn, info):
    """Returns an import path with a TensorFlow and a cuDNN, both empty."""
    files = {
        "tensorflow/__init__.py": "",
        f"tensorflow-{tensorflow}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {tensorflow}\n"
        ),
        f"nvidia_cudnn_cu11-{cudnn}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: nvidia-cudnn-cu11\nVersion: {cudnn}\n"
        ),
        "nvidia/cudnn/lib/libcudnn.so.8": "",
    }
    if info:
        files["tensorflow/python/platform/build_info.py"] = info
    return str(made_up.write(folder, files))


def test_first_on_the_path_counts(tmp_path):
    info = "build_info = dict({'is_cuda_build': False})"
    path = [
        site(tmp_path / "a", "2.14.1", "8.7.0.84", info),
        site(tmp_path / "b", "2.15.0", "8.9.6.50", info),
    ]
    for first, second in (path, path[::-1]):
        build = read_tensorflow_build([first, second])
        tools = read_cuda_tools(os.environ, [first, second], 10)
        expected = (
            ("2.14.1", "8.7.0.84") if first == path[0] else ("2.15.0", "8.9.6.50")
        )
        assert (build.version, tools.version_of("nvidia-cudnn-cu11")) == expected
        assert build.path == os.path.join(first, "tensorflow")
        assert tools.nvidia_path == os.path.join(first, "nvidia")
        assert build.cuda_build is False and build.sass == ()


def test_build_without_information_is_not_one_without_code(tmp_path):
    build = read_tensorflow_build([site(tmp_path, "2.14.1", "8.7.0.84", None)])

    assert build.cuda_build is None and build.sass is None and build.ptx is None


@pytest.mark.parametrize("mark", ["run/systemd/container", ".dockerenv"])
def test_containers(tmp_path, mark):
    assert read_host(tmp_path, {}).container is False
    assert read_host(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).container
    assert read_host(made_up.write(tmp_path, {mark: ""}), {}).container


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_outlives_its_parent(tmp_path, how):
    mark = tmp_path / "pid"
    inner = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid()));"
    code = f"""if True:
        import os, threading
        from k80keras.machine.sources.child import ask_python
        hang = {inner + " time.sleep(600)"!r}
        threading.Thread(target=ask_python, args=(hang, os.environ, 600)).start()
    """
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL
    ) as parent:
        while not mark.exists() or not mark.read_text():
            assert parent.poll() is None
            time.sleep(0.05)
        child = int(mark.read_text())
        parent.send_signal(how)
    for _ in range(200):
        if not os.path.exists(f"/proc/{child}"):
            return
        time.sleep(0.05)
    raise AssertionError("the child still runs")
