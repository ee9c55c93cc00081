"""A machine's /proc, /sys and /etc as real files in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Mapping

KERNEL = "6.1.0-18-amd64"
PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  "
    "Thu May  2 14:37:44 UTC 2024\nGCC version:  gcc version 12.2.0\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54.03  "
    "Release Build  (builder@host)\n"
)
# Of sysfs: start, end and flags of registers, memory, and a third window.
WINDOWS = """0x00000000c4000000 0x00000000c4ffffff 0x0000000000040200
0x0000387800000000 0x0000387bffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000387c00000000 0x0000387c01ffffff 0x000000000014220c
"""
NO_WINDOW = """0x00000000c4000000 0x00000000c4ffffff 0x0000000000040200
0x0000000000000000 0x00000003ffffffff 0x000000002014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000001ffffff 0x000000002014220c
"""


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Writes files by their path from the root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def add_gpu(
    root: Path,
    address: str,
    device: str = "0x102d",
    driver: str | None = "nvidia",
    resource: str = WINDOWS,
    bridge: bytes | None = None,
    numa_node: str = "0",
) -> None:
    """Puts an NVIDIA GPU below a bridge on the PCI bus."""
    up = f"sys/devices/pci0000:00/0000:00:02.0/{address}"
    write(
        root,
        {
            f"{up}/vendor": "0x10de\n",
            f"{up}/device": f"{device}\n",
            f"{up}/class": "0x030200\n",
            f"{up}/resource": resource,
            f"{up}/numa_node": f"{numa_node}\n",
        },
    )
    if bridge is not None:
        write(root, {"sys/devices/pci0000:00/0000:00:02.0/config": bridge})
    if driver:
        folder = root / "sys/bus/pci/drivers" / driver
        folder.mkdir(parents=True, exist_ok=True)
        os.symlink(folder, root / up / "driver")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    os.symlink(root / up, bus / address)


def healthy_box(root: Path) -> Path:
    """Returns a machine with two K80 boards, as `tests.sim` has them."""
    write(
        root,
        {
            "etc/os-release": 'ID=debian\nVERSION_ID="12"\n',
            "proc/sys/kernel/osrelease": KERNEL + "\n",
            "proc/driver/nvidia/version": PROPRIETARY,
            "proc/modules": "nvidia 35000000 4 - Live 0x0\n",
            "proc/meminfo": "MemTotal:       65000000 kB\nMemFree: 1 kB\n",
            "proc/self/cgroup": "0::/\n",
            f"lib/modules/{KERNEL}/modules.dep": "updates/dkms/nvidia.ko: \n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
        },
    )
    (root / "dev/shm").mkdir(parents=True)
    for address in ("0000:05:00.0", "0000:06:00.0", "0000:09:00.0", "0000:0a:00.0"):
        add_gpu(root, address)
    return root


def acs_config(control: int) -> bytes:
    """Returns the configuration of a bridge whose ACS control register is given.

    Another capability (AER) comes first, as on most bridges.
    """
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x148 << 20).to_bytes(4, "little")
    config[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
    config[0x14E:0x150] = control.to_bytes(2, "little")
    return bytes(config)
