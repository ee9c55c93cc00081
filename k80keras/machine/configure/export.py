"""Decisions as lines for a shell."""

from __future__ import annotations

import os
import shlex
from typing import Iterable

from k80keras.machine.configure.settings import MEMORY_LIMIT, Setting


def export_lines(settings: Iterable[Setting]) -> str:
    """Returns `export NAME=value` lines that do what `configure` would do.

    Each has its reason as a comment above. What can't be exported is a comment
    with the command that does the same once for all.

    Args:
      settings: Iterable of `Setting`.
    """
    lines: list[str] = []
    for setting in settings:
        title = setting.name
        if setting.pinned:
            title += f"={shlex.quote(setting.old)}" if setting.old is not None else ""
        lines.append(f"# {title}: {setting.reason}")
        if setting.command:
            lines.append(f"# once: {setting.command}")
        if setting.pinned or setting.new is None:
            continue
        if setting.is_variable:
            lines.append(f"export {setting.name}={_value(setting)}")
        elif setting.name == MEMORY_LIMIT:
            lines.append(
                "# only k80keras.configure(memory_limit_bytes=...) can do that"
            )
    return "".join(f"{line}\n" for line in lines)


def _value(setting: Setting) -> str:
    new = setting.new or ""
    if setting.name == "PATH" and setting.old:
        first = new[: len(new) - len(setting.old)]
        # A job script runs where PATH is another one.
        return f'{shlex.quote(first.rstrip(os.pathsep))}:"$PATH"'
    return shlex.quote(new)
