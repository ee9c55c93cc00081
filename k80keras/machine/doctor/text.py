"""A diagnosis in words, and as a script that applies its remedies."""

from __future__ import annotations

import shlex
import textwrap
from typing import Iterable

from k80keras.machine.doctor.findings import Finding
from k80keras.machine.doctor.remedies import runs_here
from k80keras.machine.system import System

_WIDTH = 88

# What TensorFlow writes on healthy machines, and people take for errors.
HARMLESS = {
    "successful NUMA node read from SysFS had negative value (-1)": (
        "the machine has one memory node"
    ),
    "Could not find TensorRT": "TensorFlow trains without it",
    "Unable to register cuDNN factory": "two parts of TensorFlow bring the same one",
    "peer access to device ordinal": "dies of different boards go through the host",
    "AUTO sharding policy will apply DATA sharding policy": (
        "each worker reads all of the data and keeps its share"
    ),
    "ran out of memory trying to allocate": (
        "at level W: cuDNN takes an algorithm that needs less"
    ),
}


def as_text(system: System, findings: Iterable[Finding], verbose: bool = False) -> str:
    """Returns what a person reads: silent about what is fine unless `verbose`."""
    findings = list(findings)
    lines = [summary(system), ""]
    for finding in findings:
        if finding.is_problem:
            lines += [*_problem(finding), ""]
        # Who asked for a smoke test wants to see it.
        elif verbose or finding.check.startswith("smoke_"):
            lines.append(f"{finding.state:<8} {finding.check}: {finding.title}")
    if lines[-1]:
        lines.append("")
    if verbose:
        lines += ["Lines of TensorFlow's log that mean no harm:"]
        lines += [f'  "... {line} ...": {why}' for line, why in HARMLESS.items()]
        lines.append("")
    return "\n".join([*lines, _verdict(findings)])


def summary(system: System) -> str:
    """Returns one line about a machine."""
    parts = []
    names = sorted({die.name or "unknown GPU" for die in system.dies})
    for name in names:
        dies = [die for die in system.dies if die.name == name]
        boards = len({die.board_id for die in dies})
        # Who asked for dies wants to know on how many boards they sit.
        where = f" on {boards} board{'s' * (boards > 1)}" if "K80" in name else ""
        parts.append(f"{len(dies)} x {name}{where}")
    if system.driver.version or system.nvml.driver_version:
        parts.append(f"driver {system.driver.version or system.nvml.driver_version}")
    if system.pci and not system.dies:
        k80s = sum(device.is_k80 for device in system.pci)
        kind = "Tesla K80 dies" if k80s else "NVIDIA GPUs"
        parts.append(f"{k80s or len(system.pci)} {kind} on the bus")
    elif not system.has_gpu and "pci" not in system.failures:
        parts.append("No NVIDIA GPU: training runs on the CPU")
    if system.tensorflow.version:
        parts.append(f"TensorFlow {system.tensorflow.version}")
    if system.host.python:
        parts.append("Python " + ".".join(map(str, system.host.python)))
    return "; ".join(parts) + "."


def _problem(finding: Finding) -> list[str]:
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent=" " * 9)
    wrap.subsequent_indent = wrap.initial_indent
    why = [line for text in finding.why.splitlines() for line in wrap.wrap(text)]
    # A command stays in one piece, to be copied.
    title = " ".join(finding.title.split())
    return [f"{finding.state:<8} {title}", *why, f"       $ {finding.remedy}"]


def _verdict(findings: Iterable[Finding]) -> str:
    states = [finding.state for finding in findings if finding.is_problem]
    if not states:
        return "Nothing to mend."
    counts = [
        f"{states.count(state)} {state}{'s' * (states.count(state) != 1)}"
        for state in ("error", "warning")
        if state in states
    ]
    return f"{' and '.join(counts)}."


def as_script(problems: Iterable[Finding]) -> str:
    """Returns a shell script with all remedies, restarts last.

    What only the user's own shell, or another machine, can do stays a comment.
    """
    lines = [
        "#!/usr/bin/env bash",
        "# Remedies by `k80keras doctor`. Read them before you run them.",
        "run() {",
        "  printf '\\n$ %s\\n' \"$1\"",
        '  bash -c "$1" || echo "That failed." >&2',
        "}",
    ]
    for finding in sorted(problems, key=lambda f: "reboot" in f.remedy):
        # A line break in a variable must not begin a command.
        lines += ["", f"# {finding.state}: {' '.join(finding.title.split())}"]
        lines += [f"#   {line}" for line in finding.why.splitlines()]
        first = finding.remedy.split(" ")[0]
        by_hand = [f"#   {line}" for line in finding.remedy.splitlines()]
        if first in ("export", "unset", "eval"):
            lines += ["# In the shell that starts the training:", *by_hand]
        elif not runs_here(finding.remedy):
            lines += by_hand
        else:
            lines.append(f"run {shlex.quote(finding.remedy)}")
    return "\n".join([*lines, ""])
