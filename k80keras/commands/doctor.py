"""`k80keras doctor`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from absl import flags

from k80keras import files
from k80keras.commands.as_json import define_identity, print_json
from k80keras.errors import InvalidArgumentError
from k80keras.machine.doctor.examine import doctor
from k80keras.machine.doctor.text import as_script, as_text

SUMMARY = "Is this machine able to train on its K80? Each failure names its remedy."
DETAILS = "Exit code: 0 nothing to mend, 1 warnings, 2 errors."


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines what `k80keras doctor` takes."""
    flags.DEFINE_bool(
        "smoke",
        False,
        "Compute something with each library on each device, too; half a minute.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool("json", False, "Print JSON.", flag_values=flag_values)
    define_identity(flag_values)
    flags.DEFINE_bool(
        "verbose", False, "Tell what is fine as well.", flag_values=flag_values
    )
    flags.DEFINE_string(
        "fix_script",
        None,
        "Write the remedies to this file, as a script to read and run.",
        flag_values=flag_values,
    )


def run(flag_values: flags.FlagValues) -> int:
    """Examines, prints, and returns the exit code."""
    script = flag_values.fix_script and _script_path(flag_values.fix_script)
    diagnosis = doctor(smoke=flag_values.smoke)
    if script:
        text = as_script(diagnosis.problems)
        # Environment variables may hold bytes that are no UTF-8.
        files.write_text(script, text.encode("utf-8", "backslashreplace").decode())
        script.chmod(script.stat().st_mode | 0o100)
    if flag_values.json:
        value = {
            "exit_code": diagnosis.exit_code,
            "findings": [dataclasses.asdict(f) for f in diagnosis.findings],
            "smoke": diagnosis.smoke and dataclasses.asdict(diagnosis.smoke),
            "system": dataclasses.asdict(diagnosis.system),
        }
        print_json(value, diagnosis.system, flag_values)
    else:
        print(as_text(diagnosis.system, diagnosis.findings, flag_values.verbose))
    return diagnosis.exit_code


def _script_path(name: str) -> Path:
    """Returns where the script is to be; complains before minutes of smoke tests."""
    path = Path(name).resolve()
    if path.parent.is_dir() and os.access(path.parent, os.W_OK):
        if path.is_file() or not path.exists():
            return path
    raise InvalidArgumentError(
        "--fix_script must be a file, new or old, in a folder that exists and can be "
        f"written to. Received: {name}"
    )
