"""`configure`: the settings that suit this machine, before TensorFlow has its own."""

from __future__ import annotations

import dataclasses
import os
import textwrap
import warnings
from types import TracebackType
from typing import Callable, Iterator

from k80keras.machine.configure import environment, preload, tf_devices, tf_state
from k80keras.machine.configure.decide import decide
from k80keras.machine.configure.settings import (
    MEMORY_LIMIT,
    PRELOAD,
    Count,
    Devices,
    Setting,
    Switch,
    Wishes,
)
from k80keras.machine.configure.tf_state import Stage, TensorFlowState
from k80keras.machine.system import System

# What `decide` looks at.
SOURCES = ("host", "pci", "nvml", "cuda_tools")

_TOO_LATE = {
    Stage.LISTED: (
        "anything asks TensorFlow for its devices (tf.config.list_physical_devices "
        "is enough)"
    ),
    Stage.INITIALISED: (
        "TensorFlow makes its devices (the first tensor, model or strategy)"
    ),
    Stage.USED: "the first tensor, model or strategy",
}


class AppliedSettings:
    """What `configure` did, row by row.

    Iterate over it for the rows, `str()` it for a table. As a context manager it
    restores at the end.

    Attributes:
      settings: Tuple of `Setting`.
    """

    def __init__(
        self, settings: tuple[Setting, ...], undo: list[Callable[[], None]]
    ) -> None:
        self.settings = settings
        self._undo = undo

    def restore(self) -> None:
        """Puts everything back as it was, as far as that is possible.

        What was changed since, or has been read by TensorFlow, stays; so do
        loaded libraries. A second call does nothing.
        """
        while self._undo:
            self._undo.pop()()

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    def __enter__(self) -> AppliedSettings:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.restore()

    def __str__(self) -> str:
        if not self.settings:
            return "k80keras.configure: nothing to set on this machine"
        lines = []
        for row in self.settings:
            value = "-" if row.new is None else row.new
            lines.append(f"{row.state:9} {row.name} = {value}")
            lines += textwrap.wrap(
                row.reason,
                initial_indent=" " * 10,
                subsequent_indent=" " * 10,
                width=88,
                break_long_words=False,
            )
        return "\n".join(lines)


def configure(
    system: System | None = None,
    *,
    memory_growth: Switch = "auto",
    memory_limit_bytes: int | None = None,
    gpu_threads: Count = "auto",
    cpu_threads: Count = "auto",
    cudnn_workspace_bytes: Count = "auto",
    cudnn_autotune: bool | None = None,
    deterministic: bool | None = None,
    cuda_data_dir: str | bool | None = "auto",
    auto_clustering: str | bool | None = None,
    visible_devices: Devices = "auto",
    preload_cudnn: str | bool | None = "auto",
) -> AppliedSettings:
    """Sets up TensorFlow, CUDA and cuDNN in this process for this machine.

    Call it first: TensorFlow reads most of these settings once. What comes too
    late is not applied, and one warning says what to move. `"auto"` decides,
    `None` leaves alone, `False` is off. Environment variables that the user has
    set are never touched. Without a GPU, `"auto"` sets nothing but the thread
    pools, and those only where a cgroup allows fewer processors than there are.

    Args:
      system: `System`. Defaults to what `probe` finds.
      memory_growth: Bool, `"auto"`, or `None`. Whether TensorFlow takes memory
        of a GPU as it needs it. `"auto"` does, unless there is a limit. Defaults
        to `"auto"`.
      memory_limit_bytes: Int, what TensorFlow may take of each GPU. This alone
        imports TensorFlow. Defaults to `None`, no limit.
      gpu_threads: Int, `"auto"`, `None`, or `False`. Threads that launch kernels,
        of each GPU's own; `False` uses those that everything shares. Defaults to
        `"auto"`: 2, or 1 where there are not enough processors.
      cpu_threads: Int, `"auto"`, `None`, or `False`. Threads of the two pools in
        which TensorFlow computes on the CPU. Defaults to `"auto"`, the cgroup's
        limit if there is one.
      cudnn_workspace_bytes: Int, `"auto"`, `None`, or `False`. The memory that a
        convolution may use to be faster. Defaults to `"auto"`, an eighth of a die
        of less than 16 GB. `False` leaves TensorFlow's 4 GiB.
      cudnn_autotune: Bool or `None`. Whether TensorFlow times cuDNN's algorithms.
        Defaults to `None`: it does.
      deterministic: Bool or `None`. Whether each op must give the same result
        each time. Defaults to `None`.
      cuda_data_dir: String, `"auto"`, `None`, or `False`. The folder with
        `nvvm/libdevice` and `bin/ptxas` for XLA. Defaults to `"auto"`: the wheel
        `nvidia-cuda-nvcc-cu11`, where nothing else can do it.
      auto_clustering: `"fusible"`, `False`, or `None`. `"fusible"` has XLA compile
        groups of elementwise ops. Defaults to `None`.
      visible_devices: List, `"auto"`, `None`, or `False`. NVML indices or UUIDs of
        the dies to use, first one first; `False` is none at all. Defaults to
        `"auto"`: idle ones first, those of one board side by side.
      preload_cudnn: `"auto"`, `None`, or `False`. Whether to load the cuDNN of
        pip's wheels where it could not load itself. Defaults to `"auto"`.

    Returns:
      `AppliedSettings`.

    Raises:
      InvalidArgumentError: If a value is none that the argument can have, or the
        machine can't do it.
    """
    wishes = Wishes(
        memory_growth=memory_growth,
        memory_limit_bytes=memory_limit_bytes,
        gpu_threads=gpu_threads,
        cpu_threads=cpu_threads,
        cudnn_workspace_bytes=cudnn_workspace_bytes,
        cudnn_autotune=cudnn_autotune,
        deterministic=deterministic,
        cuda_data_dir=cuda_data_dir,
        auto_clustering=auto_clustering,
        visible_devices=visible_devices,
        preload_cudnn=preload_cudnn,
    )
    if system is None:
        from k80keras.machine.probe import probe

        system = probe(SOURCES)
    decided = decide(system, environment.users(os.environ), wishes)
    state = tf_state.read()
    undo: list[Callable[[], None]] = []
    rows: list[Setting] = []
    try:
        # The limit imports TensorFlow: everything else goes first.
        for row in sorted(decided, key=lambda row: row.name == MEMORY_LIMIT):
            rows.append(_apply(row, system, wishes, state, undo))
        _warn(rows)
    except BaseException:  # a warning may be an error, too
        AppliedSettings((), undo).restore()
        raise
    return AppliedSettings(tuple(rows), undo)


def _apply(
    row: Setting,
    system: System,
    wishes: Wishes,
    state: TensorFlowState,
    undo: list[Callable[[], None]],
) -> Setting:
    if row.pinned:
        return dataclasses.replace(row, state="pinned")
    if row.new is None:
        return dataclasses.replace(row, state="note")
    if row.name == "TF_FORCE_GPU_ALLOW_GROWTH" and state.memory_growth is not None:
        told = str(state.memory_growth).lower()
        why = "set by the user with set_memory_growth"
        return dataclasses.replace(
            row, old=told, new=told, reason=why, pinned=True, state="pinned"
        )
    if row.is_variable:
        return _apply_variable(row, row.new, system, state, undo)
    try:
        if row.name == PRELOAD:
            preload.load(row.new)
        elif row.is_late(state.stage):
            return dataclasses.replace(row, state="too late")
        else:
            step = tf_devices.limit_memory((wishes.memory_limit_bytes or 0) >> 20)
            if step is None:
                why = "the user has configured logical devices"
                return dataclasses.replace(
                    row, new=None, reason=why, pinned=True, state="pinned"
                )
            undo.append(step)
    except (OSError, ImportError, RuntimeError) as error:
        return dataclasses.replace(row, reason=str(error), state="failed")
    return dataclasses.replace(row, state="applied")


def _apply_variable(
    row: Setting,
    value: str,
    system: System,
    state: TensorFlowState,
    undo: list[Callable[[], None]],
) -> Setting:
    row = dataclasses.replace(row, old=os.environ.get(row.name))
    if row.old == value:
        return dataclasses.replace(row, state="applied")
    if row.is_late(state.stage):
        if row.name == "CUDA_VISIBLE_DEVICES" and state.stage == Stage.LISTED:
            step = tf_devices.show_only(system, value, os.environ)
            if step is not None:
                undo.append(step)
                why = f"{row.reason}; by tf.config.set_visible_devices"
                return dataclasses.replace(row, reason=why, state="applied")
        return dataclasses.replace(row, state="too late")
    undo.append(environment.put(row.name, value))
    unsure = row.may_be_late(state.stage)
    return dataclasses.replace(row, state="unsure" if unsure else "applied")


def _warn(rows: list[Setting]) -> None:
    late = [row for row in rows if row.state in ("too late", "unsure")]
    failed = [row for row in rows if row.state == "failed"]
    parts = []
    if late:
        first = min(row.deadline for row in late if row.deadline is not None)
        names = {
            state: ", ".join(row.name for row in late if row.state == state)
            for state in ("too late", "unsure")
        }
        told = [
            f"{text} {names[state]}"
            for state, text in (
                ("too late", "came too late for"),
                ("unsure", "may have come too late for"),
            )
            if names[state]
        ]
        parts.append(
            f"configure() {' and '.join(told)}. Call k80keras.configure() before "
            f"{_TOO_LATE[first]}"
        )
    parts += [f"configure() failed at {row.name}: {row.reason}" for row in failed]
    if parts:
        # configure() and this: the caller's line.
        warnings.warn(f"k80keras: {'; '.join(parts)}", UserWarning, stacklevel=3)
