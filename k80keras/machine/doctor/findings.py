"""What a check says."""

from __future__ import annotations

import dataclasses

STATES = ("ok", "skipped", "warning", "error")


@dataclasses.dataclass(frozen=True)
class Finding:
    """The answer of one check.

    Attributes:
      check: String, the check's name.
      state: One of `STATES`. `"skipped"`: it could not be asked, or it has no
        meaning on this machine.
      title: String, what is the case, in one line.
      why: String, why that matters and where it is known from.
      remedy: String, the one command that mends it.
    """

    check: str
    state: str
    title: str
    why: str = ""
    remedy: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether somebody should do something."""
        return self.state in ("warning", "error")


def ok(title: str) -> Finding:
    """Returns the answer of a check that is content."""
    return Finding("", "ok", title)


def skipped(title: str) -> Finding:
    """Returns the answer of a check that has no meaning here."""
    return Finding("", "skipped", title)


def warning(title: str, why: str, remedy: str) -> Finding:
    """Returns the answer that training works, but not as well as it could."""
    return Finding("", "warning", title, why, remedy)


def error(title: str, why: str, remedy: str) -> Finding:
    """Returns the answer that training on the card cannot work."""
    return Finding("", "error", title, why, remedy)
