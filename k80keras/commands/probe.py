"""`k80keras probe`."""

from __future__ import annotations

import dataclasses
import json

from absl import flags

from k80keras.machine.privacy import anonymous
from k80keras.machine.probe import probe

SUMMARY = "Everything that is known about this machine, as JSON."
DETAILS = ""


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines what `k80keras probe` takes."""
    flags.DEFINE_bool(
        "identity",
        False,
        "Leave UUIDs, serial numbers, host and user names in.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> int:
    """Looks and prints."""
    system = probe()
    value = dataclasses.asdict(system)
    if not flag_values.identity:
        value = anonymous(value, system.host.distribution_family)
    print(json.dumps(value, indent=1))
    return 0
