"""What `doctor` asks of a `System`, from the slot in the case upwards."""

from __future__ import annotations

import dataclasses
from typing import Callable

from k80keras.machine.doctor.checks import (
    card,
    dies,
    driver,
    environment,
    health,
    software,
)
from k80keras.machine.doctor.findings import Finding
from k80keras.machine.system import System


@dataclasses.dataclass(frozen=True)
class Check:
    """One question.

    Attributes:
      ask: Function from a `System` to a `Finding`; its name is the check's.
      needs: Sources without which there is no answer.
      after: Checks whose error makes this question idle: whatever it found
        would only be that error again.
    """

    ask: Callable[[System], Finding]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the check is called in reports."""
        return self.ask.__name__


_WORKING = ("memory_window", "kernel_driver", "nvml")

CHECKS = (
    Check(card.card, ("pci",)),
    Check(card.memory_window, ("pci",)),
    Check(driver.kernel_driver, ("host", "pci", "driver"), ("memory_window",)),
    Check(driver.nvml, ("nvml", "pci"), ("memory_window", "kernel_driver")),
    Check(driver.libcuda, ("libcuda", "pci", "driver"), _WORKING),
    Check(card.all_dies, ("host", "pci", "nvml"), _WORKING),
    Check(card.link, ("nvml",)),
    Check(software.python, ("host", "pci")),
    Check(software.tensorflow, ("tensorflow",), ("python",)),
    Check(software.tensorflow_code, ("tensorflow", "pci"), ("python", "tensorflow")),
    Check(software.cuda_libraries, ("cuda_tools", "pci"), ("tensorflow_code",)),
    Check(software.nvrtc, ("cuda_tools",), ("tensorflow_code", "cuda_libraries")),
    Check(software.xla_tools, ("cuda_tools", "tensorflow"), ("tensorflow_code",)),
    Check(environment.visible_devices, ("nvml",)),
    Check(environment.allocator),
    Check(environment.xla_flags),
    Check(
        software.tensorflow_devices,
        ("nvml", "tensorflow_run"),
        (*_WORKING, "libcuda", "tensorflow", "tensorflow_code", "visible_devices"),
    ),
    Check(health.heat, ("nvml",)),
    Check(health.power, ("nvml",)),
    Check(health.memory_errors, ("nvml",)),
    Check(health.persistence, ("nvml",)),
    Check(health.clocks, ("nvml",)),
    Check(health.others, ("nvml",)),
    Check(dies.shared_memory, ("host", "nvml")),
    Check(dies.peer_to_peer, ("host", "pci", "nvml")),
    Check(dies.peers, ("nvml",)),
    Check(dies.self_test, ("nvml", "self_test", "tensorflow")),
)
