"""CUDA's libraries and tools, as wheels and elsewhere."""

from __future__ import annotations

import os
import re
from typing import Mapping, Sequence

from k80keras.machine import cuda_tools
from k80keras.machine.sources.child import ask_python, run
from k80keras.machine.sources.packages import installed
from k80keras.machine.system import CUDAPackage, CUDATools

# As cuDNN 8 itself asks for it.
_ASK = """
import ctypes
try:
    ctypes.CDLL("libnvrtc.so")
    print("true")
except OSError:
    print("false")
"""


def read_cuda_tools(
    environ: Mapping[str, str], path: Sequence[str], timeout_seconds: float
) -> CUDATools:
    """Returns what TensorFlow would find in this environment."""
    found = installed(path, r"nvidia-.*-cu\d+")
    folders = [os.path.join(place, "nvidia") for place in path if place]
    nvidia = next((folder for folder in folders if os.path.isdir(folder)), None)
    roots = cuda_tools.cuda_roots(environ, path)
    ptxas = cuda_tools.find_ptxas(roots, environ)
    return CUDATools(
        ptxas=ptxas,
        ptxas_version=_version(ptxas, environ, timeout_seconds) if ptxas else None,
        libdevice=cuda_tools.find_libdevice(roots),
        nvrtc_link=_nvrtc_link(found, nvidia, environ, timeout_seconds),
        packages=tuple(CUDAPackage(*package) for package in found.items()),
        nvidia_path=nvidia,
    )


def _version(
    ptxas: str, environ: Mapping[str, str], timeout_seconds: float
) -> tuple[int, int] | None:
    told = run([ptxas, "--version"], environ, timeout_seconds)
    found = re.search(r"release (\d+)\.(\d+)", told)
    if not found:
        raise RuntimeError(f"{ptxas} --version answered rubbish: {told[:80]!r}")
    return int(found.group(1)), int(found.group(2))


def _nvrtc_link(
    packages: Mapping[str, str],
    nvidia: str | None,
    environ: Mapping[str, str],
    timeout_seconds: float,
) -> bool | None:
    if not packages.get("nvidia-cudnn-cu11", "").startswith("8.") or not nvidia:
        return None
    if os.path.exists(os.path.join(nvidia, "cudnn", "lib", "libnvrtc.so")):
        return True
    return bool(ask_python(_ASK, environ, timeout_seconds, "-S", "-E"))
