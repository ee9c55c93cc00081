"""How far TensorFlow has got in this process, without importing it.

Private attributes of TensorFlow's eager context are read here and nowhere else.
Sessions of TensorFlow 1 and `device_lib.list_local_devices` go around that
context: what they initialise can't be seen from Python.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from typing import Any


class Stage(enum.IntEnum):
    """What TensorFlow has done, each including those before.

    Attributes:
      NOT_IMPORTED: Nothing.
      IMPORTED: Loaded; it has looked at no device.
      LISTED: It knows which devices there are: CUDA has been started.
      INITIALISED: The devices exist, with their allocators and threads.
      USED: A kernel of some kind has run. `read` never returns this: it can't
        be seen, and is there as a deadline.
    """

    NOT_IMPORTED = 0
    IMPORTED = 1
    LISTED = 2
    INITIALISED = 3
    USED = 4


@dataclasses.dataclass(frozen=True)
class TensorFlowState:
    """A look at TensorFlow.

    Attributes:
      stage: `Stage`.
      memory_growth: Bool, what `set_memory_growth` was last told for any GPU;
        `None` if it was not called.
    """

    stage: Stage
    memory_growth: bool | None = None


def read() -> TensorFlowState:
    """Returns the state of TensorFlow in this process."""
    if "tensorflow" not in sys.modules:
        return TensorFlowState(Stage.NOT_IMPORTED)
    context = _context()
    if context is None or context._physical_devices is None:
        return TensorFlowState(Stage.IMPORTED)
    told = [v for v in context._memory_growth_map.values() if v is not None]
    stage = Stage.LISTED if context._context_handle is None else Stage.INITIALISED
    return TensorFlowState(stage, memory_growth=told[-1] if told else None)


def forget_logical_devices(device: Any) -> None:
    """Undoes `set_logical_device_configuration`, which no public call does.

    Args:
      device: `tf.config.PhysicalDevice`.
    """
    context = _context()
    if context is not None and context._context_handle is None:
        context._virtual_device_map.pop(device, None)


def _context() -> Any:
    module = sys.modules.get("tensorflow.python.eager.context")
    return getattr(module, "_context", None)
