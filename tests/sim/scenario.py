"""What the simulated box is like: files that may change while programs run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Mapping

_DEFAULT = Path(__file__).with_name("default.json")

# Name -> what differs from default.json, by dotted key. The first one is a
# healthy box of two boards; each other one has just the fault of its name.
SCENARIOS: Mapping[str, Mapping[str, Any]] = {
    "healthy": {},
    "no_card": {"boards": []},
    # The library was upgraded, the kernel still runs the old module.
    "driver_mismatch": {
        "functions_error": {"nvmlInitWithFlags": 18, "cuInit": 803},
    },
    "driver_not_loaded": {
        "functions_error": {"nvmlInitWithFlags": 9, "cuInit": 100},
    },
    "die_lost": {"boards.0.dies.1.lost": True},
    # Above the temperature at which the card slows down, below shutdown.
    "hot": {
        "boards.1.dies.0.temperature": 90,
        "boards.1.dies.0.load": 100,
        "boards.1.dies.0.temperature_at_full_load": 90,
        "boards.1.dies.0.clock_graphics_at_full_load": 324,
        "boards.1.dies.0.throttle_reasons_at_full_load": 0x08 | 0x20,
        "boards.1.dies.0.violation.thermal": 600 * 10**9,
    },
    "ecc_faults": {
        "boards.0.dies.0.ecc_errors.volatile.corrected": 12,
        "boards.0.dies.0.ecc_errors.volatile.uncorrected": 2,
        "boards.0.dies.0.ecc_errors.aggregate.corrected": 40,
        "boards.0.dies.0.ecc_errors.aggregate.uncorrected": 3,
        "boards.0.dies.0.retired_pages.single_bit": [4096],
        "boards.0.dies.0.retired_pages.double_bit": [8192, 12288],
        "boards.0.dies.0.retired_pages_pending": True,
    },
    "old_nvml": {
        "functions_missing": ["nvmlDeviceGetViolationStatus", "nvmlDeviceGetP2PStatus"],
    },
    # The board's own plug is not in.
    "no_power": {"functions_error": {"nvmlDeviceGetHandleByIndex_v2": 8}},
    # As a card whose bus no longer answers.
    "hung": {"functions_slow": {"nvmlDeviceGetTemperature": 3600}},
}


def load(path: Path = _DEFAULT) -> dict[str, Any]:
    """Returns a scenario; without `path`, the healthy box."""
    box: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return box


def change(box: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Changes values of a scenario.

    Args:
      box: Dict, changed in place.
      changes: Mapping from a dotted key such as `"boards.0.dies.1.lost"`.
    """
    for key, value in changes.items():
        at: Any = box
        *way, last = key.split(".")
        for word in way:
            at = at[int(word)] if isinstance(at, list) else at.setdefault(word, {})
        at[last] = value


def write(path: Path, text: str) -> None:
    """Writes a file that another program may be reading."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, "utf-8")
    os.replace(new, path)


def nccl_topology(box: Mapping[str, Any]) -> str:
    """Returns the text of an NCCL_TOPO_FILE for the box.

    NCCL looks for the dies in /sys, where simulated ones are not, except for
    what this file tells. Each board is a PCIe switch with its dies below, as on
    a K80.
    """
    nodes: dict[int, list[str]] = {}
    for b, board in enumerate(box["boards"]):
        node = int({**box["defaults"], **board}["numa_node"])
        switch = _pci(f"0000:{0xA0 + b:02x}:08.0", "0x060400", "0x10b5", "0x8747")
        dies = [
            _pci(pci_address(b, d, die), "0x030200", "0x10de", "0x102d", "0x106c")
            + "/>"
            for d, die in enumerate(board["dies"])
        ]
        nodes.setdefault(node, []).extend([switch + ">", *dies, "</pci>"])
    lines = []
    for node, inside in sorted(nodes.items()):
        cpu = f'<cpu numaid="{node}" affinity="ffffffff" arch="x86_64" '
        cpu += 'vendor="GenuineIntel" familyid="6" modelid="63">'
        lines += [cpu, *inside, "</cpu>"]
    return "\n".join(['<system version="1">', *lines, "</system>", ""])


def pci_address(board: int, place: int, die: Mapping[str, Any]) -> str:
    """Returns where a die is on the bus, made up as `scn_pci` in C does."""
    return str(die.get("pci", f"0000:{5 + 4 * board + place:02x}:00.0")).lower()


def _pci(
    address: str, kind: str, vendor: str, device: str, subsystem: str | None = None
) -> str:
    return (
        f'<pci busid="{address}" class="{kind}" vendor="{vendor}" device="{device}" '
        f'subsystem_vendor="{vendor}" subsystem_device="{subsystem or device}" '
        'link_speed="8.0 GT/s PCIe" link_width="16"'
    )
