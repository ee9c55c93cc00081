"""Machines without a card, with a simulated one, and made up of files."""

from tests.sim.fixtures import gpu_box, nvml_box

__all__ = ["gpu_box", "nvml_box"]
