from __future__ import annotations

from tests.machine.configure.child import ask

LOOK = """
import json, sys
from k80keras.machine.configure import tf_state

stages = []

def look():
    stages.append(tf_state.read().stage.name)

look()
import tensorflow as tf
look()
"""


def stages(code: str) -> list[str]:
    found: list[str] = ask(LOOK + code + "\nlook()\nprint(json.dumps(stages))")
    return found


def test_each_stage() -> None:
    code = "tf.config.list_physical_devices()\nlook()\ntf.ones(3)"
    order = ["NOT_IMPORTED", "IMPORTED", "LISTED", "INITIALISED"]
    assert stages(code) == order


def test_looking_changes_nothing() -> None:
    code = """
import json, sys
from k80keras.machine.configure import tf_state
tf_state.read()
loaded = "tensorflow" in sys.modules
import tensorflow as tf
from tensorflow.python.eager import context
before = context.context_safe()
tf_state.read()
print(json.dumps([loaded, context.context_safe() is before]))
"""
    assert ask(code) == [False, True]


def test_ways_to_the_same_stage() -> None:
    listed = "tf.config.set_visible_devices([], 'GPU')"
    assert stages(listed)[-1] == "LISTED"
    # They make no device.
    unmade = "tf.config.threading.set_intra_op_parallelism_threads(2)"
    assert stages(unmade)[-1] in ("IMPORTED", "LISTED")
    made = "tf.keras.Sequential([tf.keras.layers.Dense(1)]).build((None, 2))"
    assert stages(made)[-1] == "INITIALISED"
    graph = "tf.function(lambda: 1).get_concrete_function()"
    assert stages(graph)[-1] == "INITIALISED"


def test_forgets_logical_devices() -> None:
    code = """
import json
import tensorflow as tf
from k80keras.machine.configure import tf_state

(cpu,) = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
tf_state.forget_logical_devices(cpu)
tf_state.forget_logical_devices(cpu)
found = [tf.config.get_logical_device_configuration(cpu)]
found.append(len(tf.config.list_logical_devices("CPU")))
print(json.dumps(found))
"""
    assert ask(code) == [None, 1]
