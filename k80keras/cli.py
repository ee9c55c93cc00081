"""The command `k80keras`: shows and dispatches, nothing else."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
from types import ModuleType
from typing import Sequence

from absl import flags

from k80keras import __version__
from k80keras.errors import K80KerasError

COMMANDS = ("doctor", "env", "probe")
# Of sysexits.h: 1 and 2 are what `doctor` says.
_USAGE, _IO_ERROR = 64, 74


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand.

    Args:
      argv: Arguments without the program's name. Defaults to those of the
        command line.

    Returns:
      Int, the exit code: that of the subcommand, 64 for a command line that
        means nothing, or 74 if its output could not be written.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path or a variable may hold what the terminal's encoding has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except (flags.Error, K80KerasError) as error:
        return _complain(str(error))
    except OSError as error:
        # Python would complain again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # The reader (`head`, say) may have seen enough.
        done = isinstance(error, BrokenPipeError)
        return 0 if done else _complain(str(error), _IO_ERROR)
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    if not words or words[0] in ("help", "--help", "-h"):
        print(_help())
        return 0
    if words[0] == "--version":
        print(f"k80keras {__version__}")
        return 0
    name = words[0]
    if name not in COMMANDS:
        return _complain(_unknown("command", name, COMMANDS))
    command = _load(name)
    values = flags.FlagValues()
    command.define_flags(values)
    if any(word in ("--help", "-h") for word in words[1:]):
        print(_command_help(name, command, values))
        return 0
    try:
        rest = values([f"k80keras {name}", *words[1:]])
    except flags.UnrecognizedFlagError as error:
        return _complain(_unknown("option", f"--{error.flagname}", _options(values)))
    if len(rest) > 1:
        return _complain(f"every option is --name or --name=value, not {rest[1]!r}")
    return int(command.run(values))


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"k80keras.commands.{name}")


def _options(values: flags.FlagValues) -> list[str]:
    return [f"--{name}" for name in sorted(values)]


def _unknown(kind: str, word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else f" There are: {', '.join(known)}."
    return f"no {kind} is called {word}.{hint}"


def _complain(message: str, code: int = _USAGE) -> int:
    print("k80keras: " + " ".join(message.split()), file=sys.stderr)
    return code


def _help() -> str:
    rows = [f"  {name:<8} {_load(name).SUMMARY}" for name in COMMANDS]
    return "\n".join(
        [
            "Usage: k80keras COMMAND [--option ...]",
            "",
            *rows,
            "",
            "Options of a command: k80keras COMMAND --help",
        ]
    )


def _command_help(name: str, command: ModuleType, values: flags.FlagValues) -> str:
    lines = [f"Usage: k80keras {name} [--option ...]", "", command.SUMMARY]
    if command.DETAILS:
        lines.append(command.DETAILS)
    rows = []
    for option in sorted(values):
        flag = values[option]
        text = f"--{option}" if flag.boolean else f"--{option}={option.upper()}"
        rows.append(f"  {text:<26} {flag.help}")
    return "\n".join([*lines, *([""] if rows else []), *rows])
