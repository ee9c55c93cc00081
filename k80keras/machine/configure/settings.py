"""What `configure` is asked for, and what it decides, as plain values."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Sequence, Union

from k80keras.errors import InvalidArgumentError
from k80keras.machine.configure.tf_state import Stage

# "auto" decides, `None` leaves alone, `False` is off.
Count = Union[int, str, None]
Switch = Union[bool, str, None]
Devices = Union[Sequence[Union[int, str]], str, bool, None]

MEMORY_LIMIT = "memory limit"
PRELOAD = "preload of cuDNN"
LAYOUT = "data layout"

# The first stage of TensorFlow at which a setting comes too late. Found with
# TensorFlow 2.14.1 (those of a GPU in the simulated box) by setting each variable
# later and later, until nothing came of it. Not so CUDA_DEVICE_ORDER: it is
# taken to be read together with CUDA_VISIBLE_DEVICES.
DEADLINES = {
    "CUDA_DEVICE_ORDER": Stage.LISTED,
    "CUDA_VISIBLE_DEVICES": Stage.LISTED,
    "TF_XLA_FLAGS": Stage.LISTED,
    "TF_FORCE_GPU_ALLOW_GROWTH": Stage.INITIALISED,
    "TF_GPU_THREAD_MODE": Stage.INITIALISED,
    "TF_GPU_THREAD_COUNT": Stage.INITIALISED,
    "TF_NUM_INTRAOP_THREADS": Stage.INITIALISED,
    "TF_NUM_INTEROP_THREADS": Stage.INITIALISED,
    MEMORY_LIMIT: Stage.INITIALISED,
    # The first convolution.
    "TF_CUDNN_WORKSPACE_LIMIT_IN_MB": Stage.USED,
    "TF_CUDNN_USE_AUTOTUNE": Stage.USED,
    # The first op of which there are a fast and a reproducible kind.
    "TF_DETERMINISTIC_OPS": Stage.USED,
    # The first compilation by XLA.
    "XLA_FLAGS": Stage.USED,
    # PATH is searched at each compilation, and a process that needed the preload
    # and went without is no more.
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row of what `configure` decided.

    Attributes:
      name: String, of an environment variable, or in words.
      old: String, the value before; `None` if there was none.
      new: String, the value after; `None` if there is nothing to set.
      reason: String, why, and where the figures are from.
      pinned: Bool. Whether the user has set it, so that it is left alone.
      state: String: `"decided"`, then `"applied"`, `"unsure"` (applied, but it
        may have been too late), `"too late"` (not applied), `"failed"` (not
        possible; the reason says why), `"pinned"`, or `"note"` (nothing to do).
      command: String, the shell command that does the same for good; `None` if
        there is none.
    """

    name: str
    old: str | None
    new: str | None
    reason: str
    pinned: bool = False
    state: str = "decided"
    command: str | None = None

    @property
    def is_variable(self) -> bool:
        """Whether this is an environment variable."""
        return self.name.isupper()

    @property
    def deadline(self) -> Stage | None:
        """The stage of TensorFlow at which this comes too late, if ever."""
        return DEADLINES.get(self.name)

    def is_late(self, stage: Stage) -> bool:
        """Whether TensorFlow has already read this."""
        return self.deadline is not None and stage >= self.deadline

    def may_be_late(self, stage: Stage) -> bool:
        """Whether TensorFlow may have read this: nobody can see whether."""
        return self.deadline == Stage.USED and stage == Stage.INITIALISED


@dataclasses.dataclass(frozen=True)
class Wishes:
    """The arguments of `configure`, checked; it documents them.

    Raises:
      InvalidArgumentError: If a value is not one that the argument can have.
    """

    memory_growth: Switch = "auto"
    memory_limit_bytes: int | None = None
    gpu_threads: Count = "auto"
    cpu_threads: Count = "auto"
    cudnn_workspace_bytes: Count = "auto"
    cudnn_autotune: bool | None = None
    deterministic: bool | None = None
    cuda_data_dir: str | bool | None = "auto"
    auto_clustering: str | bool | None = None
    visible_devices: Devices = "auto"
    preload_cudnn: str | bool | None = "auto"

    def __post_init__(self) -> None:
        for name, (allowed, rule) in _RULES.items():
            value = getattr(self, name)
            if not allowed(value):
                raise InvalidArgumentError(
                    f"configure: {name} must be {rule}. Received: {value!r}"
                )


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _one_of(*allowed: Any) -> Callable[[Any], bool]:
    # Not `in`: 0 == False.
    return lambda value: any(value is a or value == a != 0 for a in allowed)


def _is_devices(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return _one_of("auto", None, False)(value)
    return all(_whole(v, 0) or isinstance(v, str) for v in value)


def _count(least: int) -> Callable[[Any], bool]:
    other = _one_of("auto", None, False)
    return lambda value: other(value) or _whole(value, least)


_COUNT = '"auto", None, False or a whole number of at least 1'
_MIB = 1 << 20
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "memory_growth": (
        lambda v: isinstance(v, bool) or _one_of("auto", None)(v),
        '"auto", None, True or False',
    ),
    "memory_limit_bytes": (
        lambda v: v is None or _whole(v, _MIB),
        "None or a whole number of bytes, at least 1 MiB (1048576)",
    ),
    "gpu_threads": (_count(1), _COUNT),
    "cpu_threads": (_count(1), _COUNT),
    "cudnn_workspace_bytes": (
        _count(_MIB),
        '"auto", None, False or a whole number of bytes, at least 1 MiB (1048576)',
    ),
    "cudnn_autotune": (
        lambda v: v is None or isinstance(v, bool),
        "None, True or False",
    ),
    "deterministic": (
        lambda v: v is None or isinstance(v, bool),
        "None, True or False",
    ),
    "cuda_data_dir": (
        lambda v: (isinstance(v, str) and v != "") or v is None or v is False,
        '"auto", None, False or the folder of a CUDA toolkit',
    ),
    "auto_clustering": (
        _one_of("fusible", None, False),
        '"fusible", None or False (all other kinds take in matrix products, which '
        "end the process on compute capability 3.7)",
    ),
    "visible_devices": (
        _is_devices,
        '"auto", None, False (none at all), or a list of NVML indices and UUIDs',
    ),
    "preload_cudnn": (_one_of("auto", None, False), '"auto", None or False'),
}
