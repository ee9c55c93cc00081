"""What only TensorFlow's own calls can set: limits, and devices seen too late."""

from __future__ import annotations

from typing import Callable, Mapping

from k80keras.machine.configure import tf_state
from k80keras.machine.configure.tf_state import Stage
from k80keras.machine.system import System

Undo = Callable[[], None]
# Names of the devices whose limit is ours.
_limited: set[str] = set()


def limit_memory(size_mib: int) -> Undo | None:
    """Limits what TensorFlow takes of each GPU; imports TensorFlow.

    Returns:
      What undoes it, until TensorFlow makes the devices; `None` if the user has
      configured logical devices.

    Raises:
      ImportError: If TensorFlow can't be imported.
      RuntimeError: If TensorFlow sees no GPU.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise RuntimeError("TensorFlow sees no GPU")
    before = {gpu: tf.config.get_logical_device_configuration(gpu) for gpu in gpus}
    if any(before[gpu] is not None and gpu.name not in _limited for gpu in gpus):
        return None
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=size_mib)
    for gpu in gpus:
        tf.config.set_logical_device_configuration(gpu, [limit])
        _limited.add(gpu.name)

    def undo() -> None:
        if tf_state.read().stage >= Stage.INITIALISED:
            return
        for gpu in gpus:
            if tf.config.get_logical_device_configuration(gpu) != [limit]:
                continue
            tf_state.forget_logical_devices(gpu)
            if before[gpu] is None:
                _limited.discard(gpu.name)
            else:
                tf.config.set_logical_device_configuration(gpu, before[gpu])

    return undo


def show_only(system: System, value: str, environ: Mapping[str, str]) -> Undo | None:
    """Hides the other dies where `CUDA_VISIBLE_DEVICES` comes too late.

    TensorFlow must have listed its devices and not made them. It doesn't say
    which die a device is, so this works only for none at all, and where CUDA was
    told to count as NVML does, and counted all dies. The order can't be changed.

    Args:
      system: `System`.
      value: String, the value of `CUDA_VISIBLE_DEVICES` that is too late.
      environ: Mapping, the environment that CUDA has seen.

    Returns:
      What undoes it; `None` if it can't be done.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    before = tf.config.get_visible_devices("GPU")
    uuids = [die.uuid for die in system.dies]
    names = [] if value == "-1" else value.split(",")
    in_order = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    places = [uuids.index(name) for name in names if name in uuids]
    known = in_order and len(gpus) == len(uuids) and len(places) == len(names)
    # The user may have hidden some in the same way.
    if before != gpus or (names and not known) or places != sorted(places):
        return None
    wanted = [gpus[place] for place in places]
    tf.config.set_visible_devices(wanted, "GPU")

    def undo() -> None:
        if tf_state.read().stage < Stage.INITIALISED:
            if tf.config.get_visible_devices("GPU") == wanted:
                tf.config.set_visible_devices(before, "GPU")

    return undo
