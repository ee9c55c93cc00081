"""Strategies of TensorFlow's own for chosen devices."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from k80keras._keras import tf

# How replicas add up their gradients, fastest first. What `MirroredStrategy` does
# by itself ("collective") is NCCL between GPUs and a ring between CPUs.
CROSS_DEVICE_OPS: Mapping[str, Callable[[], Any]] = {
    "collective": lambda: None,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
}


def make_strategy(devices: Sequence[str], cross_device_ops: Any = "collective") -> Any:
    """Returns a strategy of TensorFlow's own over `devices`.

    Args:
      devices: TensorFlow's names. With none, or with only the device that is used
        anyway, the default strategy is returned.
      cross_device_ops: A name out of `CROSS_DEVICE_OPS`, or a
        `tf.distribute.CrossDeviceOps`.
    """
    if not devices or list(devices) in (["GPU:0"], ["CPU:0"]):
        return tf.distribute.get_strategy()
    if len(devices) == 1:
        return tf.distribute.OneDeviceStrategy(devices[0])
    if isinstance(cross_device_ops, str):
        cross_device_ops = CROSS_DEVICE_OPS[cross_device_ops]()
    return tf.distribute.MirroredStrategy(list(devices), cross_device_ops)
