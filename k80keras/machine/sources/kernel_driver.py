"""NVIDIA's kernel module: loaded, ready to load, or waiting to be built."""

from __future__ import annotations

import re
from pathlib import Path

from k80keras.machine.sources.files import names_in, read_text
from k80keras.machine.system import KernelDriver

# Distributions name it nvidia.ko, nvidia-current.ko, nvidia-tesla-470.ko ...;
# nvidia-drm, nvidia-uvm and the like are its helpers.
_MODULE = re.compile(
    r"(^|/)nvidia(-current|-tesla(-\d+)?|-legacy-\w+)?\.ko(\.\w+)?:", re.MULTILINE
)
_VERSION = re.compile(r"\b(\d{3,}(?:\.\d+)+)\b")


def read_kernel_driver(root: Path) -> KernelDriver:
    """Returns what the kernel's files under `root` say."""
    told = read_text(root / "proc/driver/nvidia/version")
    version = _VERSION.search(told or "")
    if told is not None and version is None:
        raise ValueError(f"no version in /proc/driver/nvidia/version: {told[:80]!r}")
    loaded = (read_text(root / "proc/modules") or "").splitlines()
    kernel = read_text(root / "proc/sys/kernel/osrelease") or ""
    modules = read_text(root / "lib/modules" / kernel / "modules.dep")
    dkms = root / "var/lib/dkms"
    return KernelDriver(
        version=version.group(1) if version else None,
        open_source="Open Kernel Module" in told if told else None,
        nouveau=any(line.split(" ")[0] == "nouveau" for line in loaded),
        installed=None if modules is None else bool(_MODULE.search(modules)),
        dkms_versions=tuple(
            name
            for package in names_in(dkms)
            if package.startswith("nvidia")
            for name in names_in(dkms / package)
            if _VERSION.fullmatch(name)
        ),
    )
