"""The script as users run it, and a data folder that the tests share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("datasets"))


def command(*flags: str) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "train.py"), *flags]


@pytest.fixture
def train_script(tmp_path: Path) -> Script:
    """Runs scripts/train.py in a folder of its own."""

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*flags), cwd=tmp_path, capture_output=True, text=True, timeout=300
        )

    return run
