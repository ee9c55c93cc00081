"""Rules for the files themselves that no linter knows."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_modules_have_at_most_400_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for path in (ROOT / "k80keras").rglob("*.py")
    }

    assert {path: n for path, n in lengths.items() if n > 400} == {}


def test_tracked_files_name_no_path_of_a_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    here = {str(ROOT), str(pathlib.Path.home()), sys.prefix, sys.base_prefix}
    # What every machine has (a home of "/", a Python in /usr) says nothing.
    here -= {"/", "/usr", "/usr/local"}
    machine = re.compile(
        "|".join(rf"(?<![\w.]){re.escape(path)}\b" for path in sorted(here))
        + r"|(?<![\w.])/(home|Users)/\w+/"
    )

    found = {}
    for name in filter(None, tracked):
        path = ROOT / name
        # A file can be tracked and deleted, or not be text.
        if path.is_file() and b"\0" not in (data := path.read_bytes()):
            match = machine.search(data.decode("utf-8", errors="replace"))
            if match:
                found[name] = match.group()
    assert found == {}
