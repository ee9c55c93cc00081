"""The simulated box as fixtures; a conftest.py imports what its tests use."""

from __future__ import annotations

import pytest

from tests.sim.box import Box, find_wheels
from tests.sim.build import why_not_build


@pytest.fixture(scope="session")
def nvml_box(tmp_path_factory: pytest.TempPathFactory) -> Box:
    """A box with NVML and libcuda, in every lane."""
    _skip_without_compiler()
    return Box(tmp_path_factory.mktemp("nvml_box"))


@pytest.fixture(scope="session")
def gpu_box(tmp_path_factory: pytest.TempPathFactory) -> Box:
    """A box whose dies TensorFlow sees."""
    _skip_without_compiler()
    nvidia = find_wheels()
    if nvidia is None:
        pytest.skip("needs TensorFlow 2.14 and the cu11 wheels: lane k80-sim")
    return Box(tmp_path_factory.mktemp("gpu_box"), nvidia)


def _skip_without_compiler() -> None:
    reason = why_not_build()
    if reason:
        pytest.skip(reason)
