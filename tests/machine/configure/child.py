"""Python programs in a process of their own, whose TensorFlow is fresh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import Any

# Whoever runs the tests may have set these.
_FOREIGN = ("CUDA_", "NVIDIA_", "TF_", "XLA_", "LD_LIBRARY_PATH")


def ask(code: str, **environ: str) -> Any:
    """Returns what a program prints, as JSON, in its last line."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    done = subprocess.run(
        [sys.executable, "-W", "error:::k80keras", "-c", textwrap.dedent(code)],
        env={**kept, "TF_CPP_MIN_LOG_LEVEL": "3", **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-3000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])
