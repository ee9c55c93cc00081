"""What was measured on."""

from __future__ import annotations

import os
import platform

import tensorflow as tf
from tensorflow import keras

from k80keras.fit.devices import gpu_names


def describe_machine() -> dict[str, str | int | bool]:
    """Returns the processor, its cores and the versions that ran."""
    names = gpu_names()
    package = __import__(keras.Model.__module__.split(".")[0])
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return {
        "cpu": _cpu_name(),
        "cores": cores,
        "gpus": ", ".join(names) or "none",
        "ran_on_k80": any("K80" in name for name in names),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": package.__version__,
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
