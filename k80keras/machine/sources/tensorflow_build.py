"""What is inside the installed TensorFlow, without importing it."""

from __future__ import annotations

import ast
from importlib import machinery
from pathlib import Path
from typing import Any, Sequence

from k80keras.machine import fatbin
from k80keras.machine.sources.packages import installed
from k80keras.machine.system import TensorFlowBuild

# The library with the kernels, in wheels since 2.11 and before.
_LIBRARIES = ("libtensorflow_cc.so.2", "python/_pywrap_tensorflow_internal.so")
_PACKAGE = "(tensorflow|tf-nightly)(-(gpu|cpu|intel|rocm))?"


def read_tensorflow_build(path: Sequence[str]) -> TensorFlowBuild:
    """Returns what the TensorFlow on the import path `path` was built for."""
    found = installed(path, _PACKAGE)
    spec = machinery.PathFinder.find_spec("tensorflow", list(path))
    if spec is None or not spec.origin:
        return TensorFlowBuild(packages=tuple(found))
    folder = Path(spec.origin).parent
    info = _build_info(folder / "python/platform/build_info.py")
    cuda = str(info.get("cuda_version", "")).split(".")
    sass, ptx = _architectures(folder, info.get("is_cuda_build"))
    return TensorFlowBuild(
        version=next(iter(found.values()), "unknown"),
        packages=tuple(found),
        path=str(folder),
        cuda_build=info.get("is_cuda_build"),
        cuda_version=(int(cuda[0]), int(cuda[1])) if len(cuda) > 1 else None,
        cudnn_version=info.get("cudnn_version"),
        sass=sass,
        ptx=ptx,
    )


def _build_info(path: Path) -> dict[str, Any]:
    """Returns the dictionary that the file would make, without running it."""
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            return dict(ast.literal_eval(node.args[0]))
    return {}


def _architectures(folder: Path, cuda_build: bool | None) -> Any:
    if cuda_build is False:
        return (), ()
    for name in _LIBRARIES:
        if (folder / name).exists():
            return fatbin.architectures(folder / name)
    return None, None
