"""Reading the kernel's small files."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str | None:
    """Returns what a file says, stripped; `None` if there is no such file."""
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_int(path: Path) -> int | None:
    """Returns the number (decimal, or hexadecimal with 0x) in a file.

    Returns:
      Int; `None` if there is no such file, or it says `max`.

    Raises:
      ValueError: If the file holds anything else.
    """
    text = read_text(path)
    if text is None or text == "max":
        return None
    return int(text, 0)


def names_in(folder: Path) -> list[str]:
    """Returns the sorted names in a folder, none if there is no such folder."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
