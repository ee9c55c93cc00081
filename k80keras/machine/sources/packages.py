"""What is installed on an import path, without importing it."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Sequence


def installed(path: Sequence[str], name: str) -> dict[str, str]:
    """Returns the versions of the packages whose name is like this, sorted.

    Args:
      path: Folders; the first one with a package is the one that is imported.
      name: Regular expression of names in lower case, parted by hyphens.
    """
    found: dict[str, str] = {}
    for package in metadata.distributions(path=list(path)):
        known = (package.metadata["Name"] or "").lower().replace("_", "-")
        if re.fullmatch(name, known):
            found.setdefault(known, package.version)
    return dict(sorted(found.items()))
