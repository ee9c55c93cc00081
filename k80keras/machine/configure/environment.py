"""Environment variables, and which of them are ours."""

from __future__ import annotations

import os
from typing import Callable, Mapping

# Name -> (what the user had, what we set).
_ours: dict[str, tuple[str | None, str]] = {}


def users(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment as it would be without `put`."""
    found = dict(environ)
    for name, (original, value) in _ours.items():
        if found.get(name) == value:
            if original is None:
                del found[name]
            else:
                found[name] = original
    return found


def put(name: str, value: str) -> Callable[[], None]:
    """Sets a variable of this process and returns what undoes it.

    The undo does nothing if the variable has another value by then: it is
    somebody else's.
    """
    before, entry = os.environ.get(name), _ours.get(name)
    is_ours = entry is not None and entry[1] == before
    os.environ[name] = value
    _ours[name] = (entry[0] if entry is not None and is_ours else before, value)

    def undo() -> None:
        if os.environ.get(name) != value:
            return
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
        if entry is not None and is_ours:
            _ours[name] = entry
        else:
            _ours.pop(name, None)

    return undo
