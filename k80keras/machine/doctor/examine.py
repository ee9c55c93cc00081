"""Is this machine able to train on its K80? If not, which command mends it?"""

from __future__ import annotations

import dataclasses
from concurrent import futures
from typing import Mapping

from k80keras.machine.doctor.checks import CHECKS, Check
from k80keras.machine.doctor.findings import STATES, Finding
from k80keras.machine.doctor.remedies import runs_here
from k80keras.machine.doctor.text import as_text
from k80keras.machine.probe import probe
from k80keras.machine.smoke.result import SmokeReport
from k80keras.machine.smoke.run import run_smoke
from k80keras.machine.system import System

# By hand, what a source asks: whatever it could not read is seen in person.
_BY_HAND = {
    "host": "cat /etc/os-release /proc/self/cgroup",
    "pci": "lspci -nnk -d 10de:",
    "driver": "cat /proc/driver/nvidia/version",
    "libcuda": "ldconfig -p | grep libcuda",
    "nvml": "sudo dmesg | grep -iE 'nvrm|xid' ; nvidia-smi",
    "cuda_tools": "ptxas --version",
    "tensorflow": "pip show --files tensorflow",
    "self_test": "cat ~/.cache/k80keras/self_test.json",
    "tensorflow_run": 'python -c "import tensorflow"',
}


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `doctor` found.

    Attributes:
      system: The `System` that it looked at.
      findings: Tuple of `Finding`, from the slot in the case upwards.
      smoke: `SmokeReport`, `None` if nothing was run.
    """

    system: System
    findings: tuple[Finding, ...]
    smoke: SmokeReport | None = None

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that call for somebody to do something."""
        return tuple(finding for finding in self.findings if finding.is_problem)

    @property
    def exit_code(self) -> int:
        """0 if all is well, 1 with warnings, 2 with errors."""
        worst = max((STATES.index(f.state) for f in self.findings), default=0)
        return max(0, worst - 1)

    def __str__(self) -> str:
        return as_text(self.system, self.findings)


def doctor(
    system: System | None = None,
    *,
    smoke: bool = False,
    root: str = "/",
    environ: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Checks a machine, layer by layer. Changes nothing.

    Args:
      system: What `probe` returned. Defaults to a fresh look.
      smoke: Bool. Whether to compute something with each library on each device
        as well (in child processes).
      root: See `probe`.
      environ: See `probe`.

    Returns:
      A `Diagnosis`. A check that crashes, or whose source cannot be read, is a
      finding as well; nothing is raised.
    """
    if system is None:
        system = probe(root=root, environ=environ)
    with futures.ThreadPoolExecutor() as pool:
        findings = list(pool.map(_ask, CHECKS, [system] * len(CHECKS)))
    failed = {finding.check for finding in findings if finding.state == "error"}
    for place, check in enumerate(CHECKS):
        first = [name for name in check.after if name in failed]
        if first:
            findings[place] = Finding(check.name, "skipped", f"mend {first[0]} first")
    report = None
    if smoke and system.tensorflow.version is not None:
        report = run_smoke(environ=environ)
        findings += _smoke_findings(report)
    return Diagnosis(system, (*_unread(system), *findings), report)


def _ask(check: Check, system: System) -> Finding:
    unread = [name for name in check.needs if name in system.failures]
    if unread:
        return Finding(check.name, "skipped", f"{unread[0]} could not be read")
    try:
        found = check.ask(system)
        # Containers have root and no sudo.
        bare = bool(system.host.root) and runs_here(found.remedy)
        remedy = found.remedy.replace("sudo ", "") if bare else found.remedy
        return dataclasses.replace(found, check=check.name, remedy=remedy)
    except Exception as error:  # one check's crash must not hide the others
        return Finding(
            check.name,
            "warning",
            f"the check itself failed: {type(error).__name__}: {error}",
            "That is a mistake in k80keras. What it looked at helps to mend it:",
            "k80keras probe > probe.json",
        )


def _unread(system: System) -> list[Finding]:
    """Returns a finding for each source that gave no answer."""
    found = []
    for source, failure in system.failures.items():
        # A driver that hangs or crashes its own library serves nobody.
        fatal = source == "nvml" and system.has_gpu
        found.append(
            Finding(
                source,
                "error" if fatal else "warning",
                f"{source} could not be read: {failure}",
                "The checks that need it are skipped. By hand:",
                _BY_HAND[source],
            )
        )
    return found


def _smoke_findings(report: SmokeReport) -> list[Finding]:
    found = []
    for result in report.results:
        check = f"smoke_{result.operation}"
        if result.state == "ok":
            by = f" ({result.library})" if result.library != "TensorFlow" else ""
            title = f"{result.subject}{by}: {result.message}"
            found.append(Finding(check, "ok", title))
        elif result.state == "skipped":
            found.append(Finding(check, "skipped", result.message))
        elif result.state == "slow":
            look = "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE"
            why = "Heat, power, or another program holds the die back."
            found.append(Finding(check, "warning", result.message, why, look))
        elif result.state == "wrong":
            look = "nvidia-smi -q -d ECC,PAGE_RETIREMENT"
            why = f"{result.library} computed something else than NumPy in float64."
            found.append(Finding(check, "error", result.message, why, look))
        else:
            why = "\n".join(report.log[-5:]) or f"{result.library} cannot work here."
            look = "k80keras doctor --verbose"
            found.append(Finding(check, "error", result.message, why, look))
    return found
