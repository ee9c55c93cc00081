"""`k80keras probe`."""

from __future__ import annotations

import dataclasses

from absl import flags

from k80keras.commands.as_json import define_identity, print_json
from k80keras.machine.probe import probe

SUMMARY = "Everything that is known about this machine, as JSON."
DETAILS = ""


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines what `k80keras probe` takes."""
    define_identity(flag_values)


def run(flag_values: flags.FlagValues) -> int:
    """Looks and prints."""
    system = probe()
    print_json(dataclasses.asdict(system), system, flag_values)
    return 0
