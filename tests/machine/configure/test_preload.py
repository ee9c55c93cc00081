"""The real cuDNN of pip's wheels, which needs no card to be loaded."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

# As TensorFlow uses it: the first library, which looks for the others later.
CONVOLVE = """
import ctypes
cudnn = ctypes.CDLL({nvidia!r} + "/cudnn/lib/libcudnn.so.8")
for part in "OpsInfer OpsTrain CnnInfer CnnTrain AdvInfer AdvTrain".split():
    assert getattr(cudnn, f"cudnn{{part}}VersionCheck")() == 0
print("fine")
"""
PRELOAD = "from k80keras.machine.configure import preload\npreload.load({nvidia!r})\n"


def run(code: str, nvidia: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code.format(nvidia=nvidia)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_cudnn_aborts_without_and_works_with_the_preload() -> None:
    try:
        cudnn = metadata.distribution("nvidia-cudnn-cu11")
    except metadata.PackageNotFoundError:
        pytest.skip("needs the cu11 wheels: lane k80-sim")
    nvidia = str(cudnn.locate_file("nvidia"))
    alone = run(CONVOLVE, nvidia)
    if alone.returncode == 0:
        pytest.skip("this machine has an unversioned libnvrtc.so")
    assert alone.returncode == -6
    assert "libnvrtc.so: cannot open shared object file" in alone.stderr
    done = run(PRELOAD + CONVOLVE, nvidia)
    assert (done.stdout, done.returncode) == ("fine\n", 0), done.stderr


def test_missing_library_is_named(tmp_path: Path) -> None:
    done = run(PRELOAD, str(tmp_path))
    assert done.returncode == 1
    assert "OSError" in done.stderr and "libcublasLt.so.11" in done.stderr
