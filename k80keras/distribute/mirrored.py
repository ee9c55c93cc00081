"""`mirrored_strategy`: the dies of a board as one, once they have shown they can."""

from __future__ import annotations

import math
import os
import re
import sys
import time
import warnings
from typing import Any, Mapping, Sequence

from absl import logging

from k80keras._keras import tf, versions
from k80keras.distribute.devices import Choice, choose_devices, list_devices
from k80keras.distribute.jit_kernels import load_jit_kernels
from k80keras.distribute.selftest.run import run_trials
from k80keras.distribute.strategies import CROSS_DEVICE_OPS, make_strategy
from k80keras.errors import InvalidArgumentError
from k80keras.machine import self_test as kept
from k80keras.machine.configure import tf_state
from k80keras.machine.self_test import SelfTest, Trial

_NO_MEMORY = re.compile("ResourceExhausted|out of memory|OUT_OF_MEMORY|OOM")


def mirrored_strategy(
    devices: str | Sequence[str] = "auto",
    cross_device_ops: Any = "auto",
    self_test: bool = True,
    timeout_seconds: float = 60.0,
) -> Any:
    """Returns a strategy for the dies of this machine that work together.

    Several dies may hang or corrupt each other's data where an IOMMU, a bridge
    or a driver leads their transfers astray. So, before this process uses them, a
    child process copies between all of them and compares, adds up known values,
    and trains two steps that must equal those of one die. TensorFlow's
    collectives (NCCL between GPUs, a ring between CPUs) are tried first, then
    `HierarchicalCopyAllReduce`, then `ReductionToOneDevice`; if all fail, one die
    is used. The verdict is kept in `~/.cache/k80keras/self_test.json`, for these
    dies, driver, TensorFlow and `NCCL_*` variables; `k80keras doctor` shows it.

    On GPUs, what TensorFlow compiles at first use is then compiled on one die:
    two at once would race.

    Call it once, before TensorFlow uses a GPU: the child process needs memory
    there. What is not as fast as it should be is told in one warning.

    Args:
      devices: List of TensorFlow's names (`"GPU:0"`), or `"auto"`: whole idle
        boards, else idle dies, else busy ones; all of one kind, 8 at most; on a
        machine without a GPU all logical CPU devices. Defaults to `"auto"`.
      cross_device_ops: `"collective"`, `"hierarchical_copy"`,
        `"reduction_to_one_device"`, `"auto"` (the first of these that works), or
        a `tf.distribute.CrossDeviceOps`, which is taken as it is, without a
        test. Defaults to `"auto"`.
      self_test: Bool. Whether to test what has not been tested. Defaults to
        `True`.
      timeout_seconds: Float. Time for the whole test; what hangs is ended, and
        the next way tried, within it. Defaults to 60.

    Returns:
      `tf.distribute.MirroredStrategy`; TensorFlow's default strategy (or
        `OneDeviceStrategy`) where there is one device to train on.

    Raises:
      InvalidArgumentError: If a device isn't there, or a value is none that the
        argument can have.
    """
    _check(cross_device_ops, timeout_seconds)
    choice = choose_devices() if devices == "auto" else _named(devices)
    if len(choice.devices) < 2:
        _say(f"{choice.reason}; training on {choice.devices[0]} alone")
        return make_strategy(choice.devices)
    way: Any = cross_device_ops
    if isinstance(way, str):
        ways = list(CROSS_DEVICE_OPS) if way == "auto" else [way]
        way = ways[0]
        if self_test and not choice.inventory.divided:
            way = _first_that_works(choice, ways, timeout_seconds)
    if way is None:
        return make_strategy(choice.devices[:1])
    if choice.devices[0].startswith("GPU"):
        load_jit_kernels(choice.devices[0])
    logging.info("k80keras: training on %s: %s", choice.reason, choice.devices)
    return make_strategy(choice.devices, way)


def _first_that_works(
    choice: Choice, ways: list[str], timeout_seconds: float
) -> str | None:
    """Returns the way to add up gradients, `None` if dies can't work together."""
    verdict = _blank(choice, os.environ)
    path = kept.path_of(os.environ)
    # A whole test says of each way before its own that it does not work.
    known = [old for old in kept.read_if_possible(path) if old.is_about(verdict)]
    tried = {trial.cross_device_ops: trial for old in known for trial in old.trials}
    trials = [tried[way] for way in ways if way in tried]
    if [t.state for t in trials if t.state == "ok"] or len(trials) == len(ways):
        return _say_what_failed(choice, trials)
    if _holds_the_memory(choice):
        _say(
            f"{', '.join(choice.devices)} were not tested: TensorFlow holds their "
            "memory already. Call mirrored_strategy() before TensorFlow uses a GPU"
        )
        return ways[0]
    started = time.monotonic()
    environ = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    found = run_trials(choice.devices, choice.visible, ways, timeout_seconds, environ)
    if any(_NO_MEMORY.search(trial.message) for trial in found):
        _say(
            f"{', '.join(choice.devices)} were not tested: another program holds "
            "their memory (nvidia-smi names it)"
        )
        return ways[0]
    if set(ways) == set(CROSS_DEVICE_OPS):
        seconds = round(time.monotonic() - started, 3)
        kept.keep(path, verdict.with_trials(found, seconds))
    return _say_what_failed(choice, found)


def _blank(choice: Choice, environ: Mapping[str, str]) -> SelfTest:
    """Returns a verdict on these devices that says nothing yet."""
    facts = {
        **versions(),
        **{k: v for k, v in sorted(environ.items()) if k.startswith("NCCL_")},
    }
    if choice.inventory.driver_version:
        facts["driver"] = choice.inventory.driver_version
    dies = tuple(map(kept.hash_of, choice.uuids))
    return SelfTest(choice.devices, None, dies=dies, facts=facts, boot=kept.boot_of())


def _say_what_failed(choice: Choice, trials: Sequence[Trial]) -> str | None:
    """Warns of ways that don't work; returns the first that does."""
    failed = [trial for trial in trials if trial.state != "ok"]
    way = next((t.cross_device_ops for t in trials if t.state == "ok"), None)
    if failed:
        told = "; ".join(f"{t.cross_device_ops}: {t.message}" for t in failed)
        instead = f"gradients go by {way}" if way else "one die is used"
        _say(f"self-test of {', '.join(choice.devices)}: {told}. So {instead}")
    return way


def _holds_the_memory(choice: Choice) -> bool:
    """Returns whether this process leaves a child no memory on its GPUs."""
    if not choice.devices[0].startswith("GPU"):
        return False
    state = tf_state.read()
    told = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() in ("true", "1")
    grows = told if state.memory_growth is None else state.memory_growth
    return state.stage >= tf_state.Stage.INITIALISED and not grows


def _named(devices: str | Sequence[str]) -> Choice:
    inventory = list_devices()
    here = [candidate.name for candidate in inventory.candidates]
    wanted = [devices] if isinstance(devices, str) else list(devices)
    names = [re.sub("^/?(device:)?", "", str(name)).upper() for name in wanted]
    if not names or len(set(names)) < len(names) or not set(names) <= set(here):
        raise InvalidArgumentError(
            'mirrored_strategy: devices must be "auto" or name different ones of '
            f"{', '.join(here)}. Received: devices={devices!r}"
        )
    return Choice(tuple(names), "as told", inventory)


def _check(cross_device_ops: Any, timeout_seconds: float) -> None:
    known = ["auto", *CROSS_DEVICE_OPS]
    is_own = isinstance(cross_device_ops, tf.distribute.CrossDeviceOps)
    if not is_own and cross_device_ops not in known:
        raise InvalidArgumentError(
            f"mirrored_strategy: cross_device_ops must be one of {', '.join(known)}, "
            f"or a tf.distribute.CrossDeviceOps. Received: {cross_device_ops!r}"
        )
    if not (math.isfinite(timeout_seconds) and timeout_seconds > 0):
        raise InvalidArgumentError(
            "mirrored_strategy: timeout_seconds must be a positive number. Received: "
            f"{timeout_seconds!r}. Leave it out for 60 s"
        )


def _say(message: str) -> None:
    """Warns at the line that called `mirrored_strategy`."""
    frame: Any = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame, level = frame.f_back, level + 1
    warnings.warn(f"k80keras: {message}", UserWarning, stacklevel=level)
