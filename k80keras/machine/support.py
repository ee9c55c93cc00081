"""Which software still holds code for a Tesla K80: data with sources.

"The wheel's code" as a source means that the architectures were read out of every
library of the wheel (see `fatbin`). Nothing here was run on a K80.
"""

from __future__ import annotations

import dataclasses
from typing import Iterable, Mapping

_WHEEL = "the wheel's code"
_SIMULATED = (
    "the wheel's code; host-side decisions on a simulated card of capability 3.7"
)


@dataclasses.dataclass(frozen=True)
class TensorFlowWheel:
    """A wheel of TensorFlow for Linux on x86-64.

    Attributes:
      version: String.
      python: Pair of versions, the first and the last Python with a wheel.
      cuda_version: Tuple of ints that it was built with.
      cudnn_version: Tuple of ints that it was built with, as far as it tells;
        the one that it loads must not be older.
      sass: Tuple of compute capabilities with machine code.
      ptx: Tuple of compute capabilities with intermediate code.
      xla_matmul: Bool. Whether XLA can multiply matrices on 3.7: a check on the
        host refuses it. `None` if that was not tried.
      source: String.
    """

    version: str
    python: tuple[tuple[int, int], tuple[int, int]]
    cuda_version: tuple[int, int]
    cudnn_version: tuple[int, ...]
    sass: tuple[tuple[int, int], ...]
    ptx: tuple[tuple[int, int], ...]
    xla_matmul: bool | None
    source: str


_TO_2_14 = ((3, 5), (5, 0), (6, 0), (7, 0), (7, 5), (8, 0))
_IN_2_15 = _TO_2_14[1:]
_IN_2_16 = ((5, 0), (6, 0), (7, 0), (8, 0), (9, 0))
_IN_2_20 = ((6, 0), (7, 0), (8, 0), (8, 9), (9, 0))
_PY37, _PY38, _PY39, _PY310, _PY311 = (3, 7), (3, 8), (3, 9), (3, 10), (3, 11)
_8_0, _9_0 = ((8, 0),), ((9, 0),)

TENSORFLOW_WHEELS = (
    TensorFlowWheel(
        "2.10.1", (_PY37, _PY310), (11, 2), (8,), _TO_2_14, _8_0, None, _WHEEL
    ),
    TensorFlowWheel(
        "2.11.1", (_PY37, _PY310), (11, 2), (8, 1), _TO_2_14, _8_0, True, _SIMULATED
    ),
    TensorFlowWheel(
        "2.12.1", (_PY38, _PY311), (11, 8), (8, 6), _TO_2_14, _8_0, False, _SIMULATED
    ),
    TensorFlowWheel(
        "2.13.1", (_PY38, _PY311), (11, 8), (8, 6), _TO_2_14, _8_0, False, _SIMULATED
    ),
    TensorFlowWheel(
        "2.14.1", (_PY39, _PY311), (11, 8), (8, 6), _TO_2_14, _8_0, False, _SIMULATED
    ),
    TensorFlowWheel(
        "2.15.1", (_PY39, _PY311), (12, 2), (8,), _IN_2_15, _8_0, None, _WHEEL
    ),
    TensorFlowWheel(
        "2.16.2", (_PY39, (3, 12)), (12, 3), (8,), _IN_2_16, _9_0, None, _WHEEL
    ),
    TensorFlowWheel(
        "2.20.0", (_PY39, (3, 13)), (12, 5), (9,), _IN_2_20, _9_0, None, _WHEEL
    ),
)

LAST_TENSORFLOW = "2.14.1"
# First and last Python with a wheel of it.
TENSORFLOW_PYTHON = (_PY39, _PY311)
# TensorFlow 2.14.1 was compiled with it, and refuses an older one.
OLDEST_CUDNN = (8, 6)


@dataclasses.dataclass(frozen=True)
class CUDALibrary:
    """Wheels of one of NVIDIA's libraries for CUDA 11.

    Attributes:
      package: String.
      versions: Tuple of strings, those that were read.
      oldest: Tuple of ints, the oldest compute capability with machine code.
      source: String.
    """

    package: str
    versions: tuple[str, ...]
    oldest: tuple[int, int]
    source: str = _WHEEL


CUDA_LIBRARIES = (
    CUDALibrary("nvidia-cudnn-cu11", ("8.5.0.96", "8.6.0.163", "8.7.0.84"), (3, 5)),
    CUDALibrary(
        "nvidia-cudnn-cu11",
        ("8.8.0.121", "8.8.1.3", "8.9.0.131", "8.9.4.25", "8.9.6.50")
        + ("9.0.0.312", "9.10.2.21"),
        (5, 0),
    ),
    CUDALibrary("nvidia-cublas-cu11", ("11.10.3.66", "11.11.3.6"), (3, 5)),
    CUDALibrary("nvidia-cufft-cu11", ("10.7.2.91", "10.9.0.58"), (3, 5)),
    CUDALibrary("nvidia-cusolver-cu11", ("11.4.0.1", "11.4.1.48"), (3, 5)),
    CUDALibrary("nvidia-cusparse-cu11", ("11.7.4.91", "11.7.5.86"), (3, 5)),
    CUDALibrary("nvidia-curand-cu11", ("10.2.10.91", "10.3.0.86"), (3, 5)),
    # TensorFlow does not load it: 2.11 to 2.14 have NCCL 2.13.4 inside.
    CUDALibrary(
        "nvidia-nccl-cu11", ("2.13.4", "2.14.3", "2.16.5", "2.18.3", "2.21.5"), (3, 5)
    ),
    CUDALibrary(
        "nvidia-cuda-nvcc-cu11", ("11.8.89",), (3, 5), "its ptxas, run on PTX for 3.7"
    ),
)

# The extra `k80` of setup.cfg. All of them together were installed and checked
# for conflicts; cuDNN 8.6.0.163 is the one to try if 8.7 should fail.
PINS: Mapping[str, str] = {
    "tensorflow": LAST_TENSORFLOW,
    "nvidia-cuda-runtime-cu11": "11.8.89",
    "nvidia-cublas-cu11": "11.11.3.6",
    "nvidia-cufft-cu11": "10.9.0.58",
    "nvidia-cudnn-cu11": "8.7.0.84",
    "nvidia-curand-cu11": "10.3.0.86",
    "nvidia-cusolver-cu11": "11.4.1.48",
    "nvidia-cusparse-cu11": "11.7.5.86",
    "nvidia-cuda-cupti-cu11": "11.8.87",
    "nvidia-cuda-nvcc-cu11": "11.8.89",
    "nvidia-cuda-nvrtc-cu11": "11.8.89",
}


@dataclasses.dataclass(frozen=True)
class DriverBranch:
    """A branch of NVIDIA's driver.

    Attributes:
      branch: Int.
      cuda_version: Tuple of ints, the newest CUDA that it speaks of itself.
      kepler: Bool. Whether it drives a K80.
      fails: String, where it was seen to fail with `LAST_TENSORFLOW` all the
        same; `None` if nobody told so.
      source: String.
    """

    branch: int
    cuda_version: tuple[int, int]
    kepler: bool
    fails: str | None
    source: str


_MATRIX = "NVIDIA's matrix of drivers, toolkits and architectures"

DRIVER_BRANCHES = (
    # NVIDIA's rules of compatibility let CUDA 11.8 run on it; cudnnCreate fails.
    DriverBranch(450, (11, 0), True, "tensorflow#62032, on a K80", _MATRIX),
    DriverBranch(470, (11, 4), True, None, _MATRIX + "; README of 470.256.02"),
    DriverBranch(535, (12, 2), False, None, _MATRIX + "; README of Debian's 535"),
)
LAST_DRIVER_BRANCH = 470
LAST_DRIVER = "470.256.02"
# The same matrix: Kepler ends with the tools of CUDA 11.
FIRST_CUDA_WITHOUT_KEPLER = (12, 0)

FIRST_MAXWELL = (5, 0)


def runs_on(
    capability: tuple[int, int],
    sass: Iterable[tuple[int, int]],
    ptx: Iterable[tuple[int, int]],
) -> bool:
    """Returns whether a GPU can run any of the code in a library.

    Machine code runs on its own compute capability and later minor versions of
    the same major one; a driver can compile intermediate code for its own
    capability and all later ones (CUDA C++ Programming Guide, application
    compatibility).

    Args:
      capability: Tuple of ints, the GPU's.
      sass: Compute capabilities with machine code.
      ptx: Compute capabilities with intermediate code.
    """
    return any(
        major == capability[0] and minor <= capability[1] for major, minor in sass
    ) or any(target <= capability for target in ptx)


def cudnn_supports(version: str, capability: tuple[int, int]) -> bool:
    """Returns whether a GPU is new enough for a version of cuDNN 8 or later.

    8.7 is the last one with Kepler (NVIDIA's support matrices of 8.5 and 8.9;
    the wheels' code for those between).

    Args:
      version: String such as `"8.7.0.84"`.
      capability: Tuple of ints, the GPU's.
    """
    major, minor = (int(part) for part in f"{version}.0".split(".")[:2])
    return capability >= ((3, 5) if (major, minor) < (8, 8) else FIRST_MAXWELL)
