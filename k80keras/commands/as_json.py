"""A report as JSON, which tells nothing about its owner unless asked."""

from __future__ import annotations

import json
from typing import Any

from absl import flags

from k80keras.machine.privacy import anonymous
from k80keras.machine.system import System


def define_identity(flag_values: flags.FlagValues) -> None:
    """Defines the flag that lets names and numbers of the machine through."""
    flags.DEFINE_bool(
        "identity",
        False,
        "Leave UUIDs, serial numbers, host and user names in the JSON.",
        flag_values=flag_values,
    )


def print_json(value: Any, system: System, flag_values: flags.FlagValues) -> None:
    """Prints a report about `system`."""
    if not flag_values.identity:
        value = anonymous(value, system.host.distribution_family)
    print(json.dumps(value, indent=1))
