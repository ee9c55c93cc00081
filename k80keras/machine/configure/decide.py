"""What to set on a machine: a pure function from what is known to decisions."""

from __future__ import annotations

import math
import os
from typing import Callable, Iterator, Mapping

from k80keras.errors import InvalidArgumentError
from k80keras.machine import support
from k80keras.machine.configure import preload, visible
from k80keras.machine.configure.settings import (
    LAYOUT,
    MEMORY_LIMIT,
    PRELOAD,
    Setting,
    Wishes,
)
from k80keras.machine.system import System

# A Tesla T4 reports 15 GiB, which is more than this.
_SMALL_DIE_BYTES = 16 * 10**9
_WORKSPACE_SHARE = 8
_DATA_DIR = "--xla_gpu_cuda_data_dir="
_MIB = 1 << 20


def decide(
    system: System,
    environ: Mapping[str, str],
    wishes: Wishes = Wishes(),
    *,
    exists: Callable[[str], bool] = os.path.exists,
) -> tuple[Setting, ...]:
    """Returns what to set, and what to leave alone and why.

    Args:
      system: `System` with the sources `host`, `pci`, `nvml` and `cuda_tools`.
      environ: Mapping, the environment as the user made it.
      wishes: `Wishes`. Defaults to deciding everything.
      exists: Function that tells whether there is such a file or folder.

    Raises:
      InvalidArgumentError: If a wish can't be had on this machine.
    """
    box = _Box(system, environ, wishes, exists)
    box.check()
    return (
        *box.devices(),
        *box.memory(),
        *box.gpu_threads(),
        *box.cudnn(),
        *box.xla(),
        *box.assembler(),
        *box.preload(),
        *box.cpu_threads(),
        *box.layout(),
    )


class _Box:
    """The questions, one a method, about one machine."""

    def __init__(
        self,
        system: System,
        environ: Mapping[str, str],
        wishes: Wishes,
        exists: Callable[[str], bool],
    ) -> None:
        self.system = system
        self.environ = environ
        self.wishes = wishes
        self.exists = exists
        self.die_count = visible.count(system, environ, wishes.visible_devices)

    @property
    def capability(self) -> tuple[int, int] | None:
        """The lowest compute capability in the machine."""
        known = [d.compute_capability for d in self.system.dies if d.compute_capability]
        return min(known, default=(3, 7) if self.system.has_k80 else None)

    @property
    def is_kepler(self) -> bool:
        """Whether there is a card that CUDA 12 dropped."""
        return self.capability is not None and self.capability < support.FIRST_MAXWELL

    @property
    def die_bytes(self) -> int | None:
        """The memory of the smallest die."""
        known = (die.memory_total_bytes for die in self.system.dies)
        return min((size for size in known if size is not None), default=None)

    @property
    def cores(self) -> float | None:
        """Processors' worth of time that this process can have."""
        host = self.system.host
        known = [n for n in (host.cpu_count, host.cpu_limit) if n is not None]
        return min(known, default=None)

    def set(self, name: str, value: str, reason: str) -> Setting:
        """Decides on a variable, unless the user did."""
        old = self.environ.get(name)
        if old is None:
            return Setting(name, None, value, reason)
        why = f"set by the user; it would be {value}"
        return Setting(name, old, old, why, pinned=True)

    def check(self) -> None:
        """Vetoes what would end the process."""
        allocator = self.environ.get("TF_GPU_ALLOCATOR")
        capability = self.capability
        if allocator == "cuda_malloc_async" and self.die_count and capability:
            if capability < (6, 0):
                found = ".".join(map(str, capability))
                raise InvalidArgumentError(
                    "configure: TF_GPU_ALLOCATOR=cuda_malloc_async ends the process "
                    "on GPUs of compute capability below 6.0. "
                    f"Received: cuda_malloc_async with compute capability {found}. "
                    "Unset TF_GPU_ALLOCATOR; against fragmentation, use smaller "
                    "batches"
                )
        size, limit = self.die_bytes, self.wishes.memory_limit_bytes
        if limit is not None and size is not None and limit > size:
            raise InvalidArgumentError(
                "configure: memory_limit_bytes must fit every die. "
                f"Received: {limit}, and the smallest die has {size}"
            )

    def devices(self) -> Iterator[Setting]:
        """Which dies, in which order."""
        if "CUDA_VISIBLE_DEVICES" in self.environ:
            if self.die_count or self.system.dies:
                # Their indices would mean other dies in another order.
                yield self.set("CUDA_VISIBLE_DEVICES", "idle dies first", "")
            return
        wish = self.wishes.visible_devices
        if wish is None:
            return
        dies = visible.choose(self.system, wish)
        if dies is None:
            return
        if not dies:
            yield self.set("CUDA_VISIBLE_DEVICES", "-1", "no GPU, as asked for")
            return
        yield self.set(
            "CUDA_DEVICE_ORDER", "PCI_BUS_ID", "counts GPUs as nvidia-smi does"
        )
        yield self.set(
            "CUDA_VISIBLE_DEVICES",
            ",".join(die.uuid for die in dies if die.uuid),
            (
                "idle dies first, those of one board side by side"
                if wish == "auto"
                else "as asked for"
            ),
        )

    def memory(self) -> Iterator[Setting]:
        """How much of a die TensorFlow takes."""
        growth, limit = self.wishes.memory_growth, self.wishes.memory_limit_bytes
        if growth == "auto" and self.die_count and limit is None:
            yield self.set(
                "TF_FORCE_GPU_ALLOW_GROWTH",
                "true",
                "else TensorFlow takes the whole die at once, and leaves no room for "
                "the code of CUDA's libraries",
            )
        elif isinstance(growth, bool):
            value = "true" if growth else "false"
            yield self.set("TF_FORCE_GPU_ALLOW_GROWTH", value, "as asked for")
        if limit is None:
            return
        if self.die_count:
            yield Setting(
                MEMORY_LIMIT, None, f"{limit // _MIB} MiB", "of each die, as asked for"
            )
        else:
            why = "there is no GPU to limit"
            yield Setting(MEMORY_LIMIT, None, None, why, state="note")

    def gpu_threads(self) -> Iterator[Setting]:
        """Who launches kernels."""
        mode, number = "TF_GPU_THREAD_MODE", "TF_GPU_THREAD_COUNT"
        wish, count = self.wishes.gpu_threads, 2
        if wish is None or (wish == "auto" and not self.die_count):
            return
        if wish is False:
            yield self.set(mode, "global", "no threads of its own for a GPU")
            return
        reason = "as asked for"
        if isinstance(wish, int):
            count = wish
        else:
            if self.cores is not None:
                count = max(1, min(count, int(self.cores / self.die_count)))
            reason = "one to launch kernels, one to copy, if there are cores for both"
        private = "work of the input pipeline does not delay a GPU's kernels"
        yield self.set(mode, "gpu_private", private)
        if self.environ.get(mode, "gpu_private") == "gpu_private":
            yield self.set(number, str(count), reason)

    def cudnn(self) -> Iterator[Setting]:
        """How convolutions are chosen."""
        workspace, size = self.wishes.cudnn_workspace_bytes, self.die_bytes
        limit, reason = None, "as asked for"
        if isinstance(workspace, int) and workspace is not False:
            limit = workspace
        elif workspace == "auto" and self.die_count and size:
            if size < _SMALL_DIE_BYTES:
                limit = size // _WORKSPACE_SHARE
                reason = (
                    f"1/{_WORKSPACE_SHARE} of a die, a choice and not measured; "
                    "TensorFlow lets a convolution take 4 GiB"
                )
        if limit is not None:
            name = "TF_CUDNN_WORKSPACE_LIMIT_IN_MB"
            yield self.set(name, str(limit // _MIB), reason)
        for name, wish in (
            ("TF_CUDNN_USE_AUTOTUNE", self.wishes.cudnn_autotune),
            ("TF_DETERMINISTIC_OPS", self.wishes.deterministic),
        ):
            if wish is not None:
                yield self.set(name, str(int(wish)), "as asked for")

    def xla(self) -> Iterator[Setting]:
        """What XLA compiles, and with which library."""
        root = self._data_dir()
        if root is not None:
            name, flags = "XLA_FLAGS", self.environ.get("XLA_FLAGS")
            why = f"libdevice is in {root}, where not every TensorFlow looks"
            yield self._append(name, flags, _DATA_DIR, root, why)
        wish = self.wishes.auto_clustering
        if wish is None:
            return
        name, flags = "TF_XLA_FLAGS", self.environ.get("TF_XLA_FLAGS")
        value = "-1" if wish is False else "2 --tf_xla_ops_to_cluster=FUSIBLE"
        why = "off, as asked for"
        if wish:
            why = "elementwise ops only, as asked for; nobody has measured it on a K80"
        yield self._append(name, flags, "--tf_xla_auto_jit=", value, why)

    def assembler(self) -> Iterator[Setting]:
        """Which `ptxas` XLA runs: the one on `PATH` goes first."""
        root = self._assembler_root()
        if root is None:
            return
        old, folder = self.environ.get("PATH"), os.path.join(root, "bin")
        if old is not None and old.split(os.pathsep)[0] == folder:
            return
        tools = self.system.cuda_tools
        found = f"{tools.ptxas} is of CUDA 12 or later" if tools.ptxas else "none found"
        yield Setting(
            "PATH",
            old,
            folder if old is None else folder + os.pathsep + old,
            (
                "as asked for"
                if root == self.wishes.cuda_data_dir
                else f"ptxas for compute capability 3.7 is there ({found})"
            ),
        )

    def preload(self) -> Iterator[Setting]:
        """Whether the wheels' cuDNN must be in the process beforehand."""
        system = self.system
        tools = system.cuda_tools
        if self.wishes.preload_cudnn != "auto" or not self.die_count:
            return
        if not preload.is_needed(tools):
            return
        command = preload.command(tools, system.host.pip)
        for folder in self.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
            if folder and self.exists(os.path.join(folder, "libcudnn.so.8")):
                why = f"LD_LIBRARY_PATH has another cuDNN first, in {folder}"
                yield Setting(PRELOAD, None, None, why, pinned=True)
                return
        yield Setting(
            PRELOAD,
            None,
            tools.nvidia_path,
            "the first convolution would end the process: cuDNN finds no "
            "libnvrtc.so; it stays loaded, nothing can undo that",
            command=command,
        )

    def cpu_threads(self) -> Iterator[Setting]:
        """How many threads compute and dispatch on the CPU."""
        host, wish = self.system.host, self.wishes.cpu_threads
        count, reason = None, "as asked for"
        if isinstance(wish, int) and wish is not False:
            count = wish
        elif wish == "auto" and host.cpu_limit is not None and host.cpu_count:
            if host.cpu_limit < host.cpu_count:
                count = max(1, math.ceil(host.cpu_limit))
                reason = (
                    f"the cgroup allows {host.cpu_limit:g} of the {host.cpu_count} "
                    "processors that TensorFlow counts"
                )
        if count is not None:
            for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
                yield self.set(name, str(count), reason)

    def layout(self) -> Iterator[Setting]:
        """The one thing that people ask for and that needs nothing."""
        if self.die_count and self.is_kepler:
            yield Setting(
                LAYOUT,
                None,
                None,
                "TensorFlow itself turns NHWC into NCHW, which cuDNN wants here",
                state="note",
            )

    def _append(
        self, name: str, old: str | None, flag: str, value: str, reason: str
    ) -> Setting:
        """Adds a flag to a variable that holds several."""
        if old is not None and flag.rstrip("=") in old:
            why = f"the user's {flag.rstrip('=')} stands"
            return Setting(name, old, old, why, pinned=True)
        return Setting(name, old, f"{old or ''} {flag}{value}".strip(), reason)

    def _data_dir(self) -> str | None:
        """Returns the folder to name to XLA, if one needs naming."""
        wish, tools = self.wishes.cuda_data_dir, self.system.cuda_tools
        if isinstance(wish, str) and wish != "auto":
            if not self.exists(wish):
                raise InvalidArgumentError(
                    "configure: cuda_data_dir must be a folder that holds "
                    f"nvvm/libdevice. Received: {wish!r}, which does not exist"
                )
            return wish
        if wish != "auto" or not self.die_count or not tools.nvidia_path:
            return None
        root = os.path.join(tools.nvidia_path, "cuda_nvcc")
        in_wheel = (tools.libdevice or "").startswith(root + os.sep)
        # Flags are parted at blanks.
        return root if in_wheel and len(root.split()) == 1 else None

    def _assembler_root(self) -> str | None:
        """Returns the folder whose `bin/ptxas` has to go first, if any."""
        wish, tools = self.wishes.cuda_data_dir, self.system.cuda_tools
        if isinstance(wish, str) and wish != "auto":
            return wish if self.exists(os.path.join(wish, "bin", "ptxas")) else None
        if wish != "auto" or not (self.die_count and self.is_kepler):
            return None
        too_new = support.FIRST_CUDA_WITHOUT_KEPLER
        able = tools.ptxas_version is not None and tools.ptxas_version < too_new
        names = {package.name for package in tools.packages}
        # Both wheels would write into one folder.
        one = "nvidia-cuda-nvcc-cu11" in names and "nvidia-cuda-nvcc-cu12" not in names
        if able or not one or tools.nvidia_path is None:
            return None
        return os.path.join(tools.nvidia_path, "cuda_nvcc")
