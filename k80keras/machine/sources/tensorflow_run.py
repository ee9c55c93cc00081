"""Whether TensorFlow can be imported, and which GPUs it then sees."""

from __future__ import annotations

from typing import Mapping

from k80keras.machine.sources.child import NoAnswerError, ask_python
from k80keras.machine.system import TensorFlowRun

_ASK = """
import json
try:
    import tensorflow as tf
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    found = dict(
        gpus=[gpu.name for gpu in gpus],
        capabilities=[detail.get("compute_capability") for detail in details],
    )
except Exception as error:
    from importlib.util import find_spec
    spec = find_spec("tensorflow")
    where = f" ({spec.origin})" if spec and spec.origin else ""
    found = dict(error=f"{type(error).__name__}: {error}{where}")
print()
print(json.dumps(found))
"""


def read_tensorflow_run(
    environ: Mapping[str, str], timeout_seconds: float
) -> TensorFlowRun:
    """Returns what TensorFlow says in a process of its own."""
    # The GPU is listed, nothing more: no memory is taken.
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", **environ}
    try:
        found = ask_python(_ASK, quiet, timeout_seconds)
    except NoAnswerError:
        raise
    except RuntimeError as error:
        return TensorFlowRun(error=str(error))
    capabilities = [tuple(c) if c else None for c in found.get("capabilities", ())]
    return TensorFlowRun(
        error=found.get("error"),
        gpus=tuple(found.get("gpus", ())),
        capabilities=tuple(capabilities),
    )
