"""Names that people type: compared loosely, corrected when they are wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def fold(name: str) -> str:
    """Returns `name` without case, `_` and `-`.

    >>> fold("ResNet50") == fold("res_net_50")
    True
    """
    return name.lower().replace("_", "").replace("-", "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a question that names the closest known names, or nothing.

    Args:
      name: String. What was typed.
      known: Strings. What could have been meant.

    Returns:
      String: `" Did you mean x or y?"`, empty if nothing comes close.

    >>> did_you_mean("resnet_21", ["mlp", "ResNet20"])
    ' Did you mean ResNet20?'
    """
    by_folded = {fold(choice): choice for choice in known}
    close = difflib.get_close_matches(fold(name), by_folded, n=3)
    if not close:
        return ""
    return f" Did you mean {' or '.join(by_folded[match] for match in close)}?"
