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
# A name in a path ends here.
_END = r"(?=$|[/\s:;,'\")])"


def anonymous(value: Any, public_words: Iterable[str] = ()) -> Any:
    """Returns plain values without UUIDs, serial numbers, host and user names.

    Args:
      value: Dicts, lists, tuples, strings and numbers, nested.
      public_words: Words that stay though the machine may be called so: a
        distribution's name, say.
    """
    pairs = [(r"\b(GPU|MIG)-[0-9a-f][0-9a-f-]*\b", rf"\1-{_HIDDEN}")]
    home = os.path.expanduser("~")
    if len(home) > 1:
        pairs.append((rf"{re.escape(home)}{_END}", "~"))
        # The user has folders elsewhere, too.
        pairs.append((rf"(?<=/){re.escape(os.path.basename(home))}{_END}", _HIDDEN))
    pairs.append((rf"/(home|Users)/[^/\s:'\"]+{_END}", rf"/\1/{_HIDDEN}"))
    host = socket.gethostname()
    names = {host, host.partition(".")[0]} - {"", "localhost", *public_words}
    # The longest first: the others may be a part of it.
    for name in sorted(names, key=len, reverse=True):
        pairs.append((rf"(?<![\w.-]){re.escape(name)}(?![\w-])", _HIDDEN))
    return _scrub(value, [(re.compile(p, re.IGNORECASE), text) for p, text in pairs])


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
