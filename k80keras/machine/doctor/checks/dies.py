"""What lets several dies hang or corrupt each other's data."""

from __future__ import annotations

from k80keras.machine.doctor.findings import Finding, ok, skipped, warning
from k80keras.machine.doctor.remedies import on_host
from k80keras.machine.self_test import latest_about
from k80keras.machine.system import System

# NCCL's own advice for containers is 1 GiB; Docker gives 64 MiB.
_SHM_BYTES = 512 << 20
# CUDA lets a device have at most eight peers at a time.
_MOST_DIES = 9


def shared_memory(system: System) -> Finding:
    """Is there room for what dies exchange through the host?"""
    size, host = system.host.shm_bytes, system.host
    if len(system.dies) < 2 or size is None:
        return skipped("fewer than two dies")
    if size >= _SHM_BYTES:
        return ok(f"/dev/shm has {size >> 20} MiB")
    command = "sudo mount -o remount,size=1G /dev/shm"
    if host.container:
        command = "docker run --shm-size=1g ..."
    return warning(
        f"/dev/shm has only {size >> 20} MiB",
        "NCCL exchanges gradients through it where dies cannot reach each other, and "
        "fails or hangs when it is full. Its manual advises 1 GiB.",
        on_host(host, command),
    )


def peer_to_peer(system: System) -> Finding:
    """Can what dies send to each other be led astray?"""
    if len(system.dies) < 2:
        return skipped("fewer than two dies")
    if "NCCL_P2P_DISABLE" in system.environ:
        return ok("NCCL_P2P_DISABLE is set")
    redirected = [d.address for d in system.pci or () if d.link_redirected]
    if system.host.iommu != "translated" and not redirected:
        return ok("nothing between the dies")
    causes = []
    if system.host.iommu == "translated":
        causes.append("the IOMMU translates addresses")
    if redirected:
        causes.append("a bridge redirects their traffic (PCIe ACS)")
    return warning(
        f"between the dies {' and '.join(causes)}",
        "Direct transfers then hang or arrive damaged (NCCL's manual, 'PCI Access "
        "Control Services'; NVIDIA/nccl#257). Boot with iommu=pt and ACS off, or let "
        "NCCL go through the host's memory:",
        "export NCCL_P2P_DISABLE=1",
    )


def peers(system: System) -> Finding:
    """Are there more dies than CUDA lets talk to each other?"""
    if len(system.dies) < 2:
        return skipped("fewer than two dies")
    if len(system.dies) <= _MOST_DIES or "CUDA_VISIBLE_DEVICES" in system.environ:
        return ok(f"{len(system.dies)} dies")
    first = [die.uuid or str(die.nvml_index) for die in system.dies[:8]]
    return warning(
        f"{len(system.dies)} dies in one process are more than CUDA connects",
        "A device has at most eight peers; a ninth fails with 'peer mapping resources "
        "exhausted'. Run one process for each eight dies.",
        f"export CUDA_VISIBLE_DEVICES={','.join(first)}",
    )


def self_test(system: System) -> Finding:
    """What did `mirrored_strategy` find when it tried several dies?"""
    uuids = [die.uuid for die in system.dies if die.uuid]
    facts = {
        "driver": system.nvml.driver_version,
        "tensorflow": system.tensorflow.version,
    }
    known = {name: value for name, value in facts.items() if value is not None}
    verdict = latest_about(system.self_test, uuids, known)
    if verdict is None:
        return skipped("no several dies have been tried with this software")
    names = " and ".join(verdict.devices)
    if verdict.passed:
        return ok(f"{names} work together (tested in {verdict.seconds:.0f} s)")
    told = "; ".join(
        f"{t.cross_device_ops}: {t.message}" for t in verdict.trials if t.state != "ok"
    )
    way = verdict.cross_device_ops
    instead = f"adds up gradients by {way}, which is slower" if way else "uses one die"
    disabled = "NCCL_P2P_DISABLE" in system.environ
    return warning(
        f"{names} do not work together as they should",
        f"{told}. So mirrored_strategy() {instead}, until the machine is restarted.",
        "sudo reboot" if disabled else "export NCCL_P2P_DISABLE=1",
    )
