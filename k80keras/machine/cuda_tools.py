"""Where XLA finds `ptxas` and `libdevice`, without loading anything of CUDA."""

from __future__ import annotations

import glob
import os
import shutil
import sys
from typing import Iterable, Mapping, Sequence


def cuda_roots(
    environ: Mapping[str, str] | None = None, path: Sequence[str] | None = None
) -> list[str]:
    """Returns the CUDA folders that TensorFlow searches, first one first.

    The order is that of TensorFlow 2.14: `XLA_FLAGS=--xla_gpu_cuda_data_dir`,
    `CUDA_DIR`, system toolkits, then the wheel `nvidia-cuda-nvcc-cu11`.

    Args:
      environ: Mapping. Defaults to `os.environ`.
      path: Folders where wheels may be. Defaults to `sys.path`.
    """
    environ = os.environ if environ is None else environ
    path = sys.path if path is None else path
    roots = data_dirs(environ)
    roots += [environ[name] for name in ("CUDA_DIR", "CUDA_HOME") if name in environ]
    roots += ["/usr/local/cuda-11.8", "/usr/local/cuda"]
    roots += [os.path.join(p, "nvidia", "cuda_nvcc") for p in path if p]
    return [root for root in roots if os.path.isdir(root)]


def data_dirs(environ: Mapping[str, str]) -> list[str]:
    """Returns the folders that `XLA_FLAGS` names, whether they exist or not."""
    flags = (flag.partition("=") for flag in environ.get("XLA_FLAGS", "").split())
    return [value for name, _, value in flags if name == "--xla_gpu_cuda_data_dir"]


def find_ptxas(
    roots: Iterable[str] | None = None, environ: Mapping[str, str] | None = None
) -> str | None:
    """Returns the `ptxas` that XLA will run; the one on `PATH` wins."""
    environ = os.environ if environ is None else environ
    on_path = shutil.which("ptxas", path=environ.get("PATH", os.defpath))
    if on_path is not None:
        return on_path
    return _first(roots, "bin/ptxas")


def find_libdevice(roots: Iterable[str] | None = None) -> str | None:
    """Returns the `libdevice` that XLA will link."""
    return _first(roots, "nvvm/libdevice/libdevice*.bc")


def _first(roots: Iterable[str] | None, pattern: str) -> str | None:
    for root in cuda_roots() if roots is None else roots:
        found = glob.glob(os.path.join(root, pattern))
        if found:
            return found[0]
    return None
