"""The simulated box."""

from __future__ import annotations

from tests.sim.fixtures import gpu_box, nvml_box

__all__ = ["gpu_box", "nvml_box"]
