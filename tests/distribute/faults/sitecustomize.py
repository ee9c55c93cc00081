"""Makes TensorFlow's reductions faulty in any Python that has this on its path.

`K80KERAS_TEST_FAULTS` names places and faults: `collective=hang,copy=wrong`.
"""

import importlib.util
import os
import signal
import sys


def _spoil(fault, function):
    def faulty(*args, **kwargs):
        if fault == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault == "crash":
            os.abort()
        if fault == "raise":
            raise RuntimeError("injected")
        return _add_one(function(*args, **kwargs))

    return faulty


def _add_one(value):
    """Adds one to each tensor of a structure."""
    if isinstance(value, (list, tuple)):
        return type(value)(_add_one(part) for part in value)
    return value + 1 if hasattr(value, "dtype") and value.dtype.is_floating else value


def _spoil_copies(function):
    def damaged(value, *args, **kwargs):
        copy = function(value, *args, **kwargs)
        arrived = getattr(value, "device", "") != getattr(copy, "device", "")
        return copy + 1 if arrived and "CPU:1" in copy.device else copy

    return damaged


def _change(name, module):
    for place, fault in FAULTS.items():
        if place == "copy" and name.endswith("array_ops"):
            module.identity = _spoil_copies(module.identity)
        if place == "collective" and name.endswith("cross_device_utils"):
            launcher = module.CollectiveReplicaLauncher
            for method in ("all_reduce", "batch_all_reduce"):
                setattr(launcher, method, _spoil(fault, getattr(launcher, method)))
        if place == "hierarchical_copy" and name.endswith("cross_device_utils"):
            function = "aggregate_gradients_using_hierarchical_copy"
            setattr(module, function, _spoil(fault, getattr(module, function)))
        if place == "reduction_to_one_device" and name.endswith("cross_device_ops"):
            module._simple_reduce = _spoil(fault, module._simple_reduce)


class _Finder:
    """Changes TensorFlow's modules as they are loaded."""

    def find_spec(self, name, path=None, target=None):
        if name not in MODULES:
            return None
        MODULES.remove(name)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            _change(name, module)

        spec.loader.exec_module = execute_and_change
        return spec


FAULTS = dict(
    part.split("=")
    for part in os.environ.get("K80KERAS_TEST_FAULTS", "").split(",")
    if part
)
MODULES = {
    "tensorflow.python.ops.array_ops",
    "tensorflow.python.distribute.cross_device_utils",
    "tensorflow.python.distribute.cross_device_ops",
}
if FAULTS:
    sys.meta_path.insert(0, _Finder())
