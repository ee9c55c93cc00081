"""Loads the cuDNN of pip's wheels in the order in which it can be loaded.

cuDNN 8.5 to 8.7 end the process in the first convolution ("libnvrtc.so: cannot
open shared object file") unless an unversioned `libnvrtc.so` can be found, which
the wheels of CUDA 11 don't bring (tensorflow/tensorflow#62194). With all of its
parts in the process beforehand, it does not ask.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex

from k80keras.machine import support
from k80keras.machine.system import CUDATools

# Each needs those before it.
_LIBRARIES = (
    "cublas/lib/libcublasLt.so.11",
    "cublas/lib/libcublas.so.11",
    "cudnn/lib/libcudnn_ops_infer.so.8",
    "cudnn/lib/libcudnn_ops_train.so.8",
    "cudnn/lib/libcudnn_cnn_infer.so.8",
    "cudnn/lib/libcudnn_cnn_train.so.8",
    "cudnn/lib/libcudnn_adv_infer.so.8",
    "cudnn/lib/libcudnn_adv_train.so.8",
)


def is_needed(tools: CUDATools) -> bool:
    """Returns whether the installed cuDNN would end the process."""
    version = tools.version_of("nvidia-cudnn-cu11") or ""
    return (
        re.match(r"8\.[567]\.", version) is not None
        and tools.nvidia_path is not None
        and tools.nvrtc_link is False
    )


def command(tools: CUDATools, pip: str) -> str:
    """Returns the shell command that makes the preload needless, once for all.

    Args:
      tools: `CUDATools`.
      pip: String, the command that installs into this Python.
    """
    target = shlex.quote(f"{tools.nvidia_path}/cudnn/lib/libnvrtc.so")
    link = f"ln -s ../../cuda_nvrtc/lib/libnvrtc.so.11.2 {target}"
    wheel = "nvidia-cuda-nvrtc-cu11"
    if tools.version_of(wheel):
        return link
    return f"{pip} install {wheel}=={support.PINS[wheel]} && {link}"


def load(nvidia_path: str) -> None:
    """Loads the libraries, which nothing can undo.

    Args:
      nvidia_path: String, the `nvidia` folder of the wheels.

    Raises:
      OSError: If one is missing or can't be loaded; says which.
    """
    for library in _LIBRARIES:
        ctypes.CDLL(os.path.join(nvidia_path, library), ctypes.RTLD_GLOBAL)
