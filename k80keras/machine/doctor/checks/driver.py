"""The driver: right branch, loaded, and the same one everywhere."""

from __future__ import annotations

import os
import shlex

from k80keras.machine import support
from k80keras.machine.doctor import remedies
from k80keras.machine.doctor.findings import Finding, error, ok, skipped, warning
from k80keras.machine.system import System, branch_of

_LAST = support.LAST_DRIVER_BRANCH


def kernel_driver(system: System) -> Finding:
    """Is a driver loaded that knows the card?"""
    if not system.has_gpu:
        return skipped("no NVIDIA GPU")
    driver, host = system.driver, system.host
    version = driver.version or system.nvml.driver_version
    if version is None and not system.pci:
        return skipped("there is no bus to look at")
    if version is None:
        return _not_loaded(system)
    if not system.has_k80:
        return ok(f"driver {version}")
    branch = branch_of(version) or 0
    if driver.open_source:
        return error(
            f"the open kernel module {version} is loaded, which cannot drive a K80",
            "NVIDIA's open modules begin with Turing. A K80 needs the proprietary "
            f"module of branch R{_LAST}.",
            remedies.on_host(host, remedies.replace_driver(host)),
        )
    if branch > _LAST:
        return error(
            f"driver {version} no longer knows the K80",
            f"R{_LAST} is the last branch with Kepler; later ones pass over the card."
            + _too_new_for_it(system),
            remedies.on_host(host, remedies.replace_driver(host)),
        )
    if branch < _LAST:
        failed = max(row.branch for row in support.DRIVER_BRANCHES if row.fails)
        say = error if branch <= failed else warning
        return say(
            f"driver {version} is older than R{_LAST}",
            f"TensorFlow {support.LAST_TENSORFLOW} failed on a K80 with R450 "
            f"(tensorflow#62032); R{_LAST} is the last branch for the card.",
            remedies.on_host(host, remedies.replace_driver(host)),
        )
    return ok(f"driver {version}")


def _too_new_for_it(system: System) -> str:
    """Returns a warning where the other card would lose its driver."""
    newer = [d.name for d in system.dies if (d.compute_capability or (0, 0)) > (8, 8)]
    if not newer:
        return ""
    return f" The {newer[0]} needs a later one: they cannot work in one machine."


def _not_loaded(system: System) -> Finding:
    """Says why a GPU on the bus has no driver."""
    driver, host = system.driver, system.host
    owners = {device.kernel_driver for device in system.pci or ()}
    if "vfio-pci" in owners:
        return error(
            "the GPU is reserved for a virtual machine (vfio-pci)",
            "The kernel hands it to guests and keeps its own drivers off.",
            "sudo sh -c 'lspci -nnk -d 10de: ; grep -r vfio /etc/modprobe.d'",
        )
    known = (*driver.dkms_versions, system.libcuda.version)
    branches = [branch for branch in map(branch_of, known) if branch is not None]
    if system.has_k80 and branches and min(branches) > _LAST:
        # Where a K80 is the only card, such a module does not even stay loaded.
        return error(
            f"driver R{min(branches)} is installed, which no longer knows the K80",
            f"R{_LAST} is the last branch with Kepler; later ones find no GPU.",
            remedies.on_host(host, remedies.replace_driver(host)),
        )
    if driver.nouveau or "nouveau" in owners:
        return error(
            "nouveau, the kernel's own driver, holds the card",
            "It cannot compute. NVIDIA's driver blacklists it and loads after a "
            "restart.",
            remedies.on_host(
                host, f"{remedies.install_driver(host)} && sudo systemctl reboot"
            ),
        )
    if host.container:
        # What this container has installed says nothing about the kernel below.
        return error(
            "the kernel below this container has no driver loaded",
            "Drivers live outside. The same check there says what is missing:",
            remedies.on_host(host, "pip install k80keras && k80keras doctor"),
        )
    if driver.installed and host.secure_boot:
        return error(
            "the kernel module is installed and not loaded, and Secure Boot is on",
            "The kernel loads signed modules only; the key with which DKMS signs must "
            "be enrolled once, at the next start.",
            "sudo mokutil --import /var/lib/dkms/mok.pub && sudo systemctl reboot",
        )
    if driver.installed:
        return error(
            "the kernel module is installed and not loaded",
            "Loading it by hand shows why.",
            "sudo modprobe nvidia || sudo dmesg | grep -i nvrm",
        )
    if driver.dkms_versions:
        return error(
            f"driver {driver.dkms_versions[-1]} is not built for the running kernel",
            "A new kernel came, and DKMS could not build the module for it: its "
            "headers are missing, or it is too new for this driver (then start the "
            "older kernel).",
            remedies.build_driver(host),
        )
    if not system.has_k80:
        return warning(
            "an NVIDIA GPU without a driver",
            "TensorFlow trains on the CPU.",
            remedies.install_newest_driver(host),
        )
    return error(
        "a Tesla K80 without a driver",
        f"NVIDIA's R{_LAST} is the last branch for the card.",
        remedies.install_driver(host),
    )


def nvml(system: System) -> Finding:
    """Does the driver's management library answer?"""
    reading, host = system.nvml, system.host
    if not system.has_gpu:
        return skipped("no NVIDIA GPU")
    if reading.error is None:
        return ok(f"NVML {reading.nvml_version or ''}".strip())
    if reading.error == "version_mismatch":
        return error(
            "the driver's libraries and its loaded kernel module differ",
            f"The module is {system.driver.version or 'of another version'}; an "
            "update replaced the libraries, and the module follows at a restart.",
            remedies.on_host(host, "sudo systemctl reboot"),
        )
    if reading.error == "driver_not_loaded":
        return error(
            "NVML finds no loaded driver",
            "Loading the module by hand shows why.",
            remedies.on_host(host, "sudo modprobe nvidia || sudo dmesg | grep -i nvrm"),
        )
    if reading.error == "library_not_found" and host.container:
        return error(
            "libnvidia-ml.so.1 is not in this container",
            "The container was started without the driver's utilities.",
            remedies.on_host(
                host,
                "docker run --gpus all "
                "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
            ),
        )
    if reading.error == "library_not_found":
        return error(
            "libnvidia-ml.so.1 is not found",
            "The kernel module is there without the driver's libraries.",
            remedies.install_driver(host),
        )
    if reading.error == "no_permission":
        return error(
            "no permission to talk to the driver",
            "The device files /dev/nvidia* are not open to this user.",
            "sudo chmod a+rw /dev/nvidia*",
        )
    if "nvidia-ml-py" in reading.error:
        return warning(
            "nvidia-ml-py is not installed",
            "Without it there is nothing to learn about the dies.",
            f"{host.pip} install nvidia-ml-py",
        )
    return error(
        f"NVML says: {reading.error}",
        "The driver is there and cannot work; the kernel's log says why.",
        remedies.on_host(host, "sudo dmesg | grep -iE 'nvrm|xid'"),
    )


def libcuda(system: System) -> Finding:
    """Would a program load the libcuda that belongs to the driver?"""
    library, host = system.libcuda, system.host
    if not system.has_gpu:
        return skipped("no NVIDIA GPU")
    if library.error:
        return error(
            "libcuda.so.1 cannot be loaded",
            library.error,
            remedies.on_host(host, remedies.install_driver(host)),
        )
    if library.path is None:
        return error(
            "libcuda.so.1 is not found",
            "TensorFlow finds the GPU through it; it comes with the driver.",
            remedies.on_host(host, remedies.install_driver(host)),
        )
    if "/stubs/" in library.path:
        return error(
            "a stub of libcuda hides that of the driver",
            f"{library.path} is there for linkers only, and every call to it fails.",
            _unhide(system),
        )
    version = system.driver.version or system.nvml.driver_version
    # Newer cards may be driven by a newer libcuda on purpose.
    differs = library.version and version and library.version != version
    if differs and system.has_k80:
        return error(
            f"a libcuda of driver {library.version} hides that of driver {version}",
            f"{library.path} is loaded first. NVIDIA's cuda-compat packages carry a "
            "newer libcuda, which cannot drive a K80.",
            _unhide(system),
        )
    return ok(library.path)


def _unhide(system: System) -> str:
    """Returns the command after which the driver's own libcuda is loaded."""
    folder = os.path.dirname(system.libcuda.path or "")
    listed = system.environ.get("LD_LIBRARY_PATH", "").split(":")
    rest = [place for place in listed if os.path.realpath(place) != folder]
    if len(rest) < len(listed):
        return f"export LD_LIBRARY_PATH={shlex.quote(':'.join(rest))}"
    if "compat" in folder:
        return remedies.remove_cuda_compat(system.host)
    return "sudo ldconfig && ldconfig -p | grep libcuda"
