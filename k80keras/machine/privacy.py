"""What a report must not tell about its owner unless asked."""

from __future__ import annotations

import os
import re
import socket
from typing import Any, Iterable

_FIELDS = ("uuid", "serial")
# They name the machines of a cluster.
_VARIABLES = ("TF_CONFIG", "NCCL_COMM_ID")
_HIDDEN = "<hidden>"


def anonymous(value: Any, public_words: Iterable[str] = ()) -> Any:
    """Returns plain values without UUIDs, serial numbers, host and user names.

    Args:
      value: Dicts, lists, tuples, strings and numbers, nested.
      public_words: Words that stay though the machine may be called so: a
        distribution's name, say.
    """
    patterns = [(re.compile(r"\b(GPU|MIG)-[0-9a-f][0-9a-f-]*\b"), rf"\1-{_HIDDEN}")]
    home = os.path.expanduser("~")
    if len(home) > 1:
        patterns.append((re.compile(rf"{re.escape(home)}(?=/|\b)"), "~"))
    patterns.append((re.compile(r"/(home|Users)/[^/\s:'\"]+"), rf"/\1/{_HIDDEN}"))
    host = socket.gethostname()
    for name in {host, host.partition(".")[0]} - {"", "localhost", *public_words}:
        patterns.append(
            (re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])"), _HIDDEN)
        )
    return _scrub(value, patterns)


def _scrub(value: Any, patterns: list[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(value, dict):
        hidden = (*_FIELDS, *_VARIABLES)
        return {
            key: (item and _HIDDEN) if key in hidden else _scrub(item, patterns)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_scrub(item, patterns) for item in value]
    if isinstance(value, str):
        for pattern, instead in patterns:
            value = pattern.sub(instead, value)
    return value
