"""Environment variables that hide a GPU or end the process."""

from __future__ import annotations

import os
import re

from k80keras.machine import cuda_tools
from k80keras.machine.configure.visible import named_dies
from k80keras.machine.doctor.findings import Finding, error, ok, skipped, warning
from k80keras.machine.system import System


def visible_devices(system: System) -> Finding:
    """Does CUDA_VISIBLE_DEVICES name dies that exist?"""
    told = system.environ.get("CUDA_VISIBLE_DEVICES")
    if told is None or not system.dies:
        return skipped("CUDA_VISIBLE_DEVICES is not set, or no die answers")
    named = named_dies(told, system)
    entries = [entry.strip() for entry in told.rstrip(", ").split(",")]
    if not named:
        return warning(
            f"CUDA_VISIBLE_DEVICES={told} hides every GPU",
            "TensorFlow trains on the CPU.",
            "unset CUDA_VISIBLE_DEVICES",
        )
    if len(set(named)) < len(named):
        return error(
            f"CUDA_VISIBLE_DEVICES={told} names a die twice",
            "CUDA may then show none at all.",
            f"export CUDA_VISIBLE_DEVICES={','.join(map(str, dict.fromkeys(named)))}",
        )
    if len(named) < len(entries):
        good = ",".join(entries[: len(named)])
        return error(
            f"CUDA_VISIBLE_DEVICES={told} ends at "
            f"{entries[len(named)] or 'an empty entry'}",
            "CUDA ignores an entry that names no die, and all entries after it.",
            f"export CUDA_VISIBLE_DEVICES={good}",
        )
    return ok(f"CUDA_VISIBLE_DEVICES names {len(named)} dies")


def allocator(system: System) -> Finding:
    """Is TensorFlow told to use an allocator that the card lacks?"""
    if system.environ.get("TF_GPU_ALLOCATOR") != "cuda_malloc_async":
        return ok("TensorFlow's own allocator")
    if not system.has_k80:
        return skipped("no Tesla K80")
    return error(
        "TF_GPU_ALLOCATOR=cuda_malloc_async ends the process on a K80",
        "It needs memory pools, which begin with compute capability 6.0; TensorFlow's "
        "message about lack of memory recommends it all the same (tensorflow#46551).",
        "unset TF_GPU_ALLOCATOR",
    )


def xla_flags(system: System) -> Finding:
    """Is XLA told to do what it cannot do?"""
    clustering = system.environ.get("TF_XLA_FLAGS", "")
    everything = re.search(r"--tf_xla_auto_jit=(1|2|fusible)\b", clustering)
    if everything and system.has_k80 and "=FUSIBLE" not in clustering:
        return error(
            f"TF_XLA_FLAGS={clustering} ends the process on a K80",
            "XLA of TensorFlow 2.14 aborts on a matmul at compute capability 3.7. "
            "Elementwise clusters are accepted: --tf_xla_ops_to_cluster=FUSIBLE.",
            "unset TF_XLA_FLAGS",
        )
    for folder in cuda_tools.data_dirs(system.environ):
        if not os.path.isdir(folder):
            return warning(
                f"XLA_FLAGS names a folder that does not exist: {folder}",
                "XLA looks for ptxas and libdevice there.",
                "unset XLA_FLAGS",
            )
    return ok("nothing that XLA cannot do")
