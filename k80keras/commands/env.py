"""`k80keras env`."""

from __future__ import annotations

import os

from absl import flags

from k80keras.machine.configure.apply import SOURCES
from k80keras.machine.configure.decide import decide
from k80keras.machine.configure.export import export_lines
from k80keras.machine.configure.settings import Wishes
from k80keras.machine.probe import probe

SUMMARY = "What configure() would set, as export lines for shells and job scripts."
DETAILS = 'In a shell or a job script: eval "$(k80keras env)"'


def define_flags(flag_values: flags.FlagValues) -> None:
    """`k80keras env` takes no flags."""


def run(flag_values: flags.FlagValues) -> int:
    """Decides and prints."""
    lines = export_lines(decide(probe(SOURCES), os.environ, Wishes()))
    print(lines or "# nothing to set on this machine\n", end="")
    return 0
