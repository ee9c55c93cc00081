"""Which `libcuda.so.1` a program would load: the loader itself is asked."""

from __future__ import annotations

import re
from typing import Mapping

from k80keras.machine.sources.child import ask_python
from k80keras.machine.system import CUDALibrary, cuda_version_of

# Loading it, and asking for its version, touches no GPU.
_ASK = """
import ctypes, json, os
found = {}
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    if "cannot open shared object file" not in str(error):
        found["error"] = str(error)
else:
    number = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(number)) == 0:
        found["cuda"] = number.value
    with open("/proc/self/maps") as maps:
        paths = [line.split(None, 5)[-1].strip() for line in maps]
    names = [path for path in paths if os.path.basename(path).startswith("libcuda.so")]
    found["path"] = names[0] if names else None
print(json.dumps(found))
"""


def read_libcuda(environ: Mapping[str, str], timeout_seconds: float) -> CUDALibrary:
    """Returns the library that the loader finds in this environment."""
    found = ask_python(_ASK, environ, timeout_seconds, "-S", "-E")
    path = found.get("path")
    version = re.search(r"libcuda\.so\.(\d+\.\d[\d.]*)$", path or "")
    return CUDALibrary(
        path=path,
        version=version.group(1) if version else None,
        cuda_version=cuda_version_of(found.get("cuda")),
        error=found.get("error"),
    )
