"""NVIDIA GPUs on the PCI bus: there even if no driver knows them."""

from __future__ import annotations

from pathlib import Path

from k80keras.machine.sources.files import names_in, read_int, read_text
from k80keras.machine.system import PCIDevice

_NVIDIA = 0x10DE
_DISPLAY_CLASS = 0x03
# Linux' IORESOURCE_UNSET: a memory window that nobody could place.
_UNSET = 0x20000000
# Registers, and the window to the GPU's own memory: 16 GiB on a K80's die.
_NEEDED_WINDOWS = (0, 1)
# Of PCI Express: the extended capability "Access Control Services", its control
# register, and the bits that redirect requests and completions between peers.
_ACS, _ACS_CONTROL, _ACS_REDIRECT = 0x000D, 6, 0b1100
_EXTENDED_START = 0x100


def read_pci(root: Path) -> tuple[PCIDevice, ...] | None:
    """Returns the NVIDIA GPUs by address; `None` where there is no PCI to see."""
    devices = root / "sys/bus/pci/devices"
    if not devices.is_dir():
        return None
    found = []
    for address in names_in(devices):
        place = devices / address
        if read_int(place / "vendor") != _NVIDIA:
            continue
        if (read_int(place / "class") or 0) >> 16 == _DISPLAY_CLASS:
            found.append(_device(address, place))
    return tuple(found)


def _device(address: str, place: Path) -> PCIDevice:
    driver = place / "driver"
    node = read_int(place / "numa_node")
    return PCIDevice(
        address=address,
        device_id=read_int(place / "device") or 0,
        kernel_driver=driver.resolve().name if driver.exists() else None,
        memory_window=_memory_window(read_text(place / "resource")),
        numa_node=node if node is not None and node >= 0 else None,
        link_redirected=_redirected(place.resolve()),
    )


def _memory_window(resource: str | None) -> bool | None:
    """Returns whether the windows in sysfs' list of start, end, flags are placed."""
    if resource is None:
        return None
    lines = [[int(n, 16) for n in line.split()] for line in resource.splitlines()]
    return all(
        number < len(lines) and lines[number][0] > 0 and not lines[number][2] & _UNSET
        for number in _NEEDED_WINDOWS
    )


def _redirected(place: Path) -> bool | None:
    """Returns whether a bridge above sends traffic between peers to the root.

    Only root may read that part of a bridge's configuration.
    """
    answers = []
    for bridge in place.parents:
        try:
            config = (bridge / "config").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if len(config) > _EXTENDED_START:
            answers.append(_redirects(config))
    return any(answers) if answers else None


def _redirects(config: bytes) -> bool:
    at, seen = _EXTENDED_START, 0
    while _EXTENDED_START <= at <= len(config) - 8 and seen < len(config):
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            control = at + _ACS_CONTROL
            bits = int.from_bytes(config[control : control + 2], "little")
            return bool(bits & _ACS_REDIRECT)
        # Guards against a list that bites its own tail.
        at, seen = header >> 20, seen + 4
    return False
