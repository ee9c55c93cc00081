"""Trains a small model under a strategy and saves its weights.

    python training_program.py STRATEGY FILE

STRATEGY is `ours`, `tuned` (ours, with K80Tuner), `plain`, `plain_hierarchical`, or
`one`.
"""

import sys

import numpy as np

from k80keras import K80Tuner
from k80keras._keras import keras, tf
from k80keras.distribute.mirrored import mirrored_strategy

STEPS, GLOBAL_BATCH_SIZE = 150, 16


def make_strategy(name):
    devices = ["CPU:0", "CPU:1"]
    if name in ("ours", "tuned"):
        return mirrored_strategy()
    if name == "plain":
        return tf.distribute.MirroredStrategy(devices)
    if name == "plain_hierarchical":
        ops = tf.distribute.HierarchicalCopyAllReduce()
        return tf.distribute.MirroredStrategy(devices, ops)
    return tf.distribute.get_strategy()


def main(name, path):
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = make_strategy(name)
    keras.utils.set_random_seed(5)
    with strategy.scope():
        layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)]
        model = keras.Sequential([keras.Input((8,)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
    random = np.random.default_rng(3)
    x = random.normal(size=(STEPS * GLOBAL_BATCH_SIZE, 8)).astype("float32")
    y = random.integers(0, 4, len(x))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(GLOBAL_BATCH_SIZE)
    tuner = K80Tuner(verbose=0)
    model.fit(data, epochs=2, verbose=0, callbacks=[tuner] if name == "tuned" else [])
    if name == "tuned":
        result = tuner.result
        assert result.status != "off" and not result.jit_compile, result
        assert max(c.steps_per_execution for c in result.candidates) > 1
    weights = {f"w{n}": w for n, w in enumerate(model.get_weights())}
    np.savez(path, replicas=strategy.num_replicas_in_sync, **weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
