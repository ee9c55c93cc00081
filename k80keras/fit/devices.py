"""What TensorFlow calls the devices that it may use."""

from __future__ import annotations

import os

from k80keras._keras import tf


def gpu_names() -> list[str]:
    """Returns what each visible GPU calls itself."""
    return [
        str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
        for gpu in tf.config.get_visible_devices("GPU")
    ]


def device_names() -> list[str]:
    """Returns the names of the visible GPUs, else the CPU and its cores."""
    return gpu_names() or [f"CPU ({os.cpu_count()} cores)"]
