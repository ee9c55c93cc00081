"""Verdicts on several devices together: kept, so that each machine is asked once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Iterable, Mapping

from k80keras.files import write_text

# Beyond that the oldest go: each change of driver or library adds one.
_MOST_KEPT = 50


@dataclasses.dataclass(frozen=True)
class Trial:
    """One way to add up gradients, tried.

    Attributes:
      cross_device_ops: String: `"collective"` (NCCL between GPUs),
        `"hierarchical_copy"`, or `"reduction_to_one_device"`.
      state: String: `"ok"`, `"wrong"` (an answer that is not the right one),
        `"failed"`, `"aborted"` (the process died), `"hung"`.
      message: String.
    """

    cross_device_ops: str
    state: str
    message: str = ""


@dataclasses.dataclass(frozen=True)
class SelfTest:
    """What several devices can do together.

    Attributes:
      devices: Tuple of strings, TensorFlow's names.
      cross_device_ops: String, the first way that works; `None` if none does.
      trials: Tuple of `Trial`, in the order in which they were run.
      seconds: Float, what it took.
      dies: Tuple of strings, the dies' `hash_of`; empty for CPU devices.
      facts: Mapping, what else the verdict depends on: versions, variables.
      boot: String, of the running kernel: the same until the next start.
    """

    devices: tuple[str, ...]
    cross_device_ops: str | None
    trials: tuple[Trial, ...] = ()
    seconds: float = 0.0
    dies: tuple[str, ...] = ()
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    boot: str = ""

    @property
    def passed(self) -> bool:
        """Whether the first and fastest way works."""
        return bool(self.trials) and self.trials[0].state == "ok"

    def with_trials(self, trials: tuple[Trial, ...], seconds: float) -> SelfTest:
        """Returns the verdict that these trials come to."""
        working = [t.cross_device_ops for t in trials if t.state == "ok"]
        return dataclasses.replace(
            self,
            cross_device_ops=working[0] if working else None,
            trials=trials,
            seconds=seconds,
        )

    def is_about(self, other: SelfTest) -> bool:
        """Returns whether this verdict holds for the devices of `other`.

        A good one holds until a version, a variable or a die changes. Faults
        depend on more (settings of the firmware and the kernel, the state of a
        card): what failed is tried again after a restart.
        """
        same = (self.devices, self.dies, dict(self.facts)) == (
            other.devices,
            other.dies,
            dict(other.facts),
        )
        return same and (self.passed or self.boot == other.boot)


def hash_of(uuid: str) -> str:
    """Returns what a kept verdict calls a die, which tells nobody its number."""
    return hashlib.sha256(f"k80keras {uuid}".encode()).hexdigest()[:16]


def boot_of(root: Path = Path("/")) -> str:
    """Returns the kernel's name for the time since the last start."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def path_of(environ: Mapping[str, str]) -> Path:
    """Returns the file in which verdicts are kept."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "k80keras" / "self_test.json"


def read(path: Path) -> tuple[SelfTest, ...]:
    """Returns the kept verdicts, newest last; none if there is no file.

    Raises:
      OSError, ValueError: If the file can't be read, or is no such file.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return ()
    try:
        return tuple(_from_plain(value) for value in json.loads(text))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"{path} holds no verdicts: {error}") from error


def read_if_possible(path: Path) -> tuple[SelfTest, ...]:
    """Returns the kept verdicts, newest last; a bad file counts as none."""
    try:
        return read(path)
    except (OSError, ValueError):
        return ()


def keep(path: Path, verdict: SelfTest) -> None:
    """Adds a verdict in place of an earlier one about the same.

    A cache folder that can't be written to costs nothing but the next test.
    """
    others = [
        old
        for old in read_if_possible(path)
        if not dataclasses.replace(old, boot=verdict.boot).is_about(verdict)
    ]
    kept = [*others, verdict][-_MOST_KEPT:]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps([dataclasses.asdict(v) for v in kept], indent=1))
    except OSError:
        pass


def latest_about(
    verdicts: Iterable[SelfTest], uuids: Iterable[str], facts: Mapping[str, str]
) -> SelfTest | None:
    """Returns the newest verdict on dies that are still here.

    Args:
      verdicts: Those that were kept, newest last.
      uuids: Of the dies that are here.
      facts: Those that must be the same: the driver's version, for example.
    """
    here = {hash_of(uuid) for uuid in uuids}
    fitting = [
        verdict
        for verdict in verdicts
        if verdict.dies
        and here.issuperset(verdict.dies)
        and all(verdict.facts.get(name) == value for name, value in facts.items())
    ]
    return fitting[-1] if fitting else None


def _from_plain(value: Mapping[str, Any]) -> SelfTest:
    return SelfTest(
        devices=tuple(value["devices"]),
        cross_device_ops=value["cross_device_ops"],
        trials=tuple(Trial(**trial) for trial in value["trials"]),
        seconds=float(value["seconds"]),
        dies=tuple(value["dies"]),
        facts=dict(value["facts"]),
        boot=str(value["boot"]),
    )
