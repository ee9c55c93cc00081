"""Runs a command inside the simulated box, for a person at the shell.

    python -m tests.sim hot k80keras doctor

The scenario's file is named on the way: edit it, and the command sees it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.sim.box import Box, find_wheels
from tests.sim.scenario import SCENARIOS


def main(arguments: list[str]) -> None:
    if len(arguments) < 2 or arguments[0] not in SCENARIOS:
        sys.exit(f"{__doc__}\nScenarios: {', '.join(SCENARIOS)}")
    name, *command = arguments
    # The folder stays: the command replaces this program.
    box = Box(Path(tempfile.mkdtemp(prefix="k80-sim-")), find_wheels())
    scenario = box.scenario(**SCENARIOS[name])
    print(f"Scenario: {scenario}", file=sys.stderr)
    os.execvpe(command[0], command, box.environ(scenario))


if __name__ == "__main__":
    main(sys.argv[1:])
