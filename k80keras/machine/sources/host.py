"""The machine around the card: limits, distribution, I/O memory management."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Callable, Iterator, Mapping, TypeVar

from k80keras.machine.sources.files import names_in, read_int, read_text
from k80keras.machine.system import Host

_Number = TypeVar("_Number", int, float)

_CONTAINER_FILES = (".dockerenv", "run/.containerenv", "run/systemd/container")
_CONTAINER_VARIABLES = (
    "container",
    "KUBERNETES_SERVICE_HOST",
    "APPTAINER_CONTAINER",
    "SINGULARITY_NAME",
)
_SECURE_BOOT = (
    "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
)


def read_host(root: Path, environ: Mapping[str, str]) -> Host:
    """Returns what the files under `root` say about the machine."""
    release = _os_release(root)
    family = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    affinity = getattr(os, "sched_getaffinity", None)
    meminfo = read_text(root / "proc/meminfo") or ""
    total = [line for line in meminfo.splitlines() if line.startswith("MemTotal:")]
    return Host(
        distribution=release.get("ID"),
        distribution_version=release.get("VERSION_ID"),
        distribution_family=tuple(filter(None, family)),
        kernel=read_text(root / "proc/sys/kernel/osrelease"),
        python=sys.version_info[:3],
        cpu_count=len(affinity(0)) if affinity else os.cpu_count(),
        cpu_limit=_smallest(root, _cpu_limit),
        memory_bytes=int(total[0].split()[1]) * 1024 if total else None,
        memory_limit_bytes=_smallest(root, _memory_limit),
        shm_bytes=_size_of(root / "dev/shm"),
        container=_in_container(root, environ),
        root=os.geteuid() == 0,
        iommu=_iommu(root),
        secure_boot=_secure_boot(root),
        pip=_pip(environ),
    )


def _os_release(root: Path) -> dict[str, str]:
    text = read_text(root / "etc/os-release") or read_text(root / "usr/lib/os-release")
    pairs = (line.partition("=") for line in (text or "").splitlines())
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def _smallest(root: Path, limit: Callable[[Path], _Number | None]) -> _Number | None:
    """Returns the tightest limit of all cgroups around this process."""
    limits = (limit(cgroup) for cgroup in _cgroups(root))
    return min((value for value in limits if value is not None), default=None)


def _cgroups(root: Path) -> Iterator[Path]:
    """Yields the folders of this process' cgroups and of those around them."""
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, own = line.split(":", 2)
        for controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / controller
            place = top / own.lstrip("/")
            # In a container the path is that of the host, and only the top is
            # here; a path may also lead above it.
            yield from (p for p in (place, *place.parents) if top in (p, *p.parents))


def _cpu_limit(cgroup: Path) -> float | None:
    both = (read_text(cgroup / "cpu.max") or "").split()
    if len(both) == 2 and both[0] != "max":
        return int(both[0]) / int(both[1])
    quota = read_int(cgroup / "cpu.cfs_quota_us")
    period = read_int(cgroup / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _memory_limit(cgroup: Path) -> int | None:
    limits = (
        read_int(cgroup / "memory.max"),
        read_int(cgroup / "memory.limit_in_bytes"),
    )
    # Version 1 writes "no limit" as nearly 2**63.
    return min((n for n in limits if n is not None and n < 1 << 60), default=None)


def _size_of(folder: Path) -> int | None:
    try:
        stat = os.statvfs(folder)
    except FileNotFoundError:
        return None
    return stat.f_frsize * stat.f_blocks


def _in_container(root: Path, environ: Mapping[str, str]) -> bool:
    marks = [root / name for name in _CONTAINER_FILES]
    first = read_text(root / "proc/1/cgroup") or ""
    known = any(word in first for word in ("docker", "kubepods", "containerd", "lxc"))
    told = any(name in environ for name in _CONTAINER_VARIABLES)
    return known or told or any(mark.exists() for mark in marks)


def _iommu(root: Path) -> str:
    groups = root / "sys/kernel/iommu_groups"
    kinds = {read_text(groups / name / "type") for name in names_in(groups)}
    if not kinds:
        return "off"
    return "passthrough" if kinds == {"identity"} else "translated"


def _secure_boot(root: Path) -> bool | None:
    try:
        # Four bytes of attributes, then the value.
        return (root / _SECURE_BOOT).read_bytes()[-1:] == b"\x01"
    except (FileNotFoundError, NotADirectoryError):
        return None


def _pip(environ: Mapping[str, str]) -> str:
    """Returns `pip`, or in full where that one serves another Python."""
    found = shutil.which("pip", path=environ.get("PATH"))
    if found and os.path.dirname(found) == os.path.dirname(sys.executable):
        return "pip"
    return f"{shlex.quote(sys.executable)} -m pip"
