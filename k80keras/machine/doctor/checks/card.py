"""The card in the case: on the bus, with memory windows, with all its dies."""

from __future__ import annotations

from k80keras.machine.doctor.findings import Finding, error, ok, skipped, warning
from k80keras.machine.doctor.remedies import on_host
from k80keras.machine.system import System


def card(system: System) -> Finding:
    """Is there a GPU, and what is it?"""
    if system.pci is None and not system.nvml.dies:
        return skipped("there is no PCI bus to look at")
    if not system.has_gpu:
        return skipped("no NVIDIA GPU: TensorFlow trains on the CPU here")
    if not system.has_k80:
        names = sorted({die.name or "?" for die in system.dies})
        return ok(", ".join(names) or "an NVIDIA GPU, but no Tesla K80")
    dies = [device for device in system.pci or () if device.is_k80]
    count = len(dies) or sum(die.is_k80 for die in system.dies)
    return ok(f"Tesla K80: {count} dies on the bus")


def memory_window(system: System) -> Finding:
    """Did the firmware make the GPU's memory reachable?"""
    if not system.pci:
        return skipped("no NVIDIA GPU on the bus")
    without = [d.address for d in system.pci if d.memory_window is False]
    if not without:
        return ok("every GPU has its memory windows")
    return error(
        f"on the bus, but without memory windows: {', '.join(without)}",
        "Each K80 die asks for 16 GiB of addresses above 4 GiB, and the firmware gave "
        "none. Switch on 'Above 4G Decoding' (or 'Memory Mapped I/O above 4 GB') in "
        "the firmware's setup, and boot by UEFI, not by CSM.",
        on_host(system.host, "sudo systemctl reboot --firmware-setup"),
    )


def all_dies(system: System) -> Finding:
    """Does the driver reach each die that is on the bus?"""
    if not system.has_gpu or system.nvml.error is not None:
        return skipped("no NVIDIA GPU, or NVML does not answer")
    # A batch system closes the dies of others: no fault of theirs.
    refused = {die.error for die in system.nvml.dies} - {None, "no_permission"}
    if "insufficient_power" in refused:
        return error(
            "the card gets no power from its plug",
            "A K80 wants the 8-pin plug of a CPU (EPS12V), not that of a graphics "
            "card; 300 W for both dies. Switch the machine off first.",
            on_host(system.host, "sudo systemctl poweroff"),
        )
    if refused:
        return error(
            f"the driver refuses {len(system.nvml.dies) - len(system.dies)} dies",
            f"NVML says: {', '.join(sorted(filter(None, refused)))}. The kernel's log "
            "says more.",
            on_host(system.host, "sudo dmesg | grep -iE 'nvrm|xid'"),
        )
    lost = [
        d.pci_bus_id or f"number {d.nvml_index}" for d in system.nvml.dies if d.lost
    ]
    reached = {die.pci_bus_id for die in system.dies}
    # A container sees the whole bus and only its own dies.
    sees_all = not system.host.container and None not in reached
    closed = any(die.error == "no_permission" for die in system.nvml.dies)
    for device in (system.pci or ()) if sees_all and not closed else ():
        # Cards of other drivers, or too new for this one, are not lost.
        ours = device.kernel_driver == "nvidia" or (
            device.is_k80 and device.kernel_driver is None
        )
        if ours and device.address not in reached and device.address not in lost:
            # A lost die may not even tell where it is.
            lost = [name for name in lost if not name.startswith("number")]
            lost.append(device.address)
    if not lost:
        return ok(f"the driver reaches all {len(system.dies)} dies")
    return error(
        f"the driver has lost contact with {len(lost)} of "
        f"{len(lost) + len(system.dies)} dies: {', '.join(lost)}",
        "A die that falls off the bus was too hot, lacks power (a K80 wants the 8-pin "
        "plug of a CPU, EPS12V, not that of a graphics card) or sits badly in its "
        "slot. Only a restart brings it back; the kernel's log says what happened.",
        on_host(
            system.host, "sudo dmesg | grep -iE 'xid|nvrm|aer' ; sudo systemctl reboot"
        ),
    )


def link(system: System) -> Finding:
    """Does each die have the lanes that it could use?"""
    narrow = [
        die
        for die in system.dies
        if die.pcie_width and die.pcie_width_max and die.pcie_width < die.pcie_width_max
    ]
    if not system.dies:
        return skipped("no die answers")
    if not narrow:
        return ok("every die has all its PCIe lanes")
    first = narrow[0]
    return warning(
        "fewer PCIe lanes than possible: "
        + ", ".join(
            f"{d.pci_bus_id} x{d.pcie_width} of x{d.pcie_width_max}" for d in narrow
        ),
        "Batches, and gradients from die to die, travel over them. Use a slot wired "
        "for 16 lanes, and reseat the card or its riser.",
        on_host(
            system.host,
            f"sudo lspci -vv -s {first.pci_bus_id} | grep -E 'LnkCap|LnkSta'",
        ),
    )
