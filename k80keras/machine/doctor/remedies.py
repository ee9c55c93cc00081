"""The exact command for this distribution. Printed for the user, never run."""

from __future__ import annotations

from k80keras.machine.support import LAST_DRIVER
from k80keras.machine.system import Host

_RUNFILE = f"NVIDIA-Linux-x86_64-{LAST_DRIVER}.run"
_RUNFILE_FOLDER = f"https://us.download.nvidia.com/tesla/{LAST_DRIVER}"
# Debian keeps NVIDIA's drivers in its sections contrib and non-free.
_NON_FREE = (
    r"sudo sed -i '/ non-free\( \|$\)/! s/\bmain\b/main contrib non-free/' "
    "$(ls /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null) "
    "&& sudo apt-get update"
)


def package_manager(host: Host) -> str | None:
    """Returns `"apt"`, `"dnf"`, or `None`."""
    family = set(host.distribution_family)
    if family & {"debian", "ubuntu"}:
        return "apt"
    return "dnf" if family & {"fedora", "rhel", "centos"} else None


def install_driver(host: Host) -> str:
    """Returns the command that installs NVIDIA's R470 driver."""
    if "ubuntu" in host.distribution_family:
        return "sudo apt-get install nvidia-driver-470-server"
    if host.distribution == "debian" and host.distribution_version in ("11", "12"):
        return (
            f"{_NON_FREE} && "
            "sudo apt-get install linux-headers-amd64 nvidia-tesla-470-driver"
        )
    if host.distribution == "fedora":
        # From RPM Fusion.
        return "sudo dnf install akmod-nvidia-470xx xorg-x11-drv-nvidia-470xx-cuda"
    version = (host.distribution_version or "").partition(".")[0]
    if package_manager(host) == "dnf" and version == "8":
        # From NVIDIA's CUDA repository.
        return "sudo dnf module install nvidia-driver:470-dkms"
    return (
        f"curl -fLO {_RUNFILE_FOLDER}/{_RUNFILE} && sudo sh {_RUNFILE} --silent --dkms"
    )


def install_newest_driver(host: Host) -> str:
    """Returns the command that installs the driver for a GPU that is no K80."""
    if "ubuntu" in host.distribution_family:
        return "sudo ubuntu-drivers install"
    if package_manager(host) == "apt":
        return f"{_NON_FREE} && sudo apt-get install linux-headers-amd64 nvidia-driver"
    if host.distribution == "fedora":
        return "sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda"
    if package_manager(host) == "dnf":
        return "sudo dnf module install nvidia-driver:latest-dkms"
    return "lspci -nn -d 10de:    # and look its driver up at nvidia.com/drivers"


def replace_driver(host: Host) -> str:
    """Returns the command that puts R470 where another driver is."""
    remove = {
        "apt": "sudo apt-get purge --autoremove '^nvidia-(dkms|driver|kernel).*' && ",
        "dnf": "sudo dnf remove '*nvidia*' && ",
        None: "sudo nvidia-uninstall --silent && ",
    }[package_manager(host)]
    return f"{remove}{install_driver(host)} && sudo systemctl reboot"


def build_driver(host: Host) -> str:
    """Returns the command that builds an installed driver for this kernel."""
    kernel = host.kernel or '"$(uname -r)"'
    headers = {
        "apt": f"sudo apt-get install linux-headers-{kernel} && ",
        "dnf": f"sudo dnf install kernel-devel-{kernel} && ",
        None: "",
    }[package_manager(host)]
    return f"{headers}sudo dkms autoinstall -k {kernel} && sudo modprobe nvidia"


def remove_cuda_compat(host: Host) -> str:
    """Returns the command that removes NVIDIA's forward-compatibility package."""
    remove = {
        "apt": "sudo apt-get remove 'cuda-compat-*'",
        "dnf": "sudo dnf remove 'cuda-compat-*'",
        None: "sudo rm -r /usr/local/cuda/compat",
    }[package_manager(host)]
    return f"{remove} && sudo ldconfig"


def on_host(host: Host, command: str) -> str:
    """Returns `command`, marked where it must be run outside of a container."""
    return f"{command}    # outside of this container" if host.container else command


def runs_here(remedy: str) -> bool:
    """Returns whether a command can be run where it is printed, as it stands."""
    return "    #" not in remedy and "..." not in remedy


def install_extra(host: Host, extra: str) -> str:
    """Returns the command that installs an extra of this package."""
    return f'{host.pip} install "k80keras[{extra}]"'


def new_environment() -> str:
    """Returns the command for a Python that TensorFlow 2.14.1 has wheels for."""
    # uv brings a Python; a virtual environment of its own, since distributions
    # keep pip off theirs.
    return (
        "python3 -m venv uv && uv/bin/pip install uv && "
        "uv/bin/uv venv --seed --python 3.11 k80 && "
        'k80/bin/pip install "k80keras[k80]"'
    )
