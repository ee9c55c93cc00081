"""The data of the conformance tests, as every kind of thing that `fit` takes.

Each function returns the arguments of `fit`.
"""

from __future__ import annotations

import numpy as np

from k80keras._keras import KERAS_3, keras, tf
from tests.conformance.models import CLASSES, FEATURES

EXAMPLES, BATCH = 16 * 30 + 5, 16  # the last batch is odd


def arrays(examples=EXAMPLES):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(examples, FEATURES)).astype("float32")
    return x, (x[:, :CLASSES]).argmax(1)


def numpy_arrays():
    x, y = arrays()
    return {"x": x, "y": y, "batch_size": BATCH, "validation_split": 0.2}


def numpy_with_weights():
    x, y = arrays()
    weights = np.linspace(0.1, 2.0, len(x)).astype("float32")
    return {
        "x": x,
        "y": y,
        "batch_size": BATCH,
        "sample_weight": weights,
        "validation_data": (x[:50], y[:50], weights[:50]),
    }


def numpy_with_class_weight():
    x, y = arrays()
    class_weight = {i: 0.5 + i for i in range(CLASSES)}
    return {"x": x, "y": y, "batch_size": BATCH, "class_weight": class_weight}


def _dataset(examples=EXAMPLES):
    return tf.data.Dataset.from_tensor_slices(arrays(examples))


def dataset():
    shuffled = _dataset().shuffle(64, seed=5).batch(BATCH).prefetch(2)
    return {"x": shuffled, "validation_data": _dataset(100).batch(BATCH)}


def static_shapes():
    return {"x": _dataset().batch(BATCH, drop_remainder=True)}


def unknown_length():
    kept = _dataset().filter(lambda x, y: x[0] > -1.0).batch(BATCH)
    return {"x": kept, "validation_data": kept, "validation_steps": 7}


def unknown_length_static():
    kept = _dataset().filter(lambda x, y: x[0] > -1.0)
    return {"x": kept.batch(BATCH, drop_remainder=True)}


def unknown_length_that_varies():
    # The second epoch holds more than the first; Keras counts on the first.
    epoch = tf.Variable(0, dtype=tf.int64)

    def count():
        return 20 + 13 * (epoch.assign_add(1) - 1)

    def some():
        x, y = arrays()
        for start in range(int(count())):
            yield x[start : start + BATCH], y[start : start + BATCH]

    specs = (
        tf.TensorSpec((None, FEATURES), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    return {"x": tf.data.Dataset.from_generator(some, output_signature=specs)}


def infinite():
    endless = _dataset().repeat().shuffle(64, seed=5).batch(BATCH)
    return {"x": endless, "steps_per_epoch": 37}


def epochs_that_share_an_iterator():
    # Neither a divisor nor a multiple of what the data holds.
    return {"x": _dataset(16 * 90).batch(BATCH), "steps_per_epoch": 29}


def too_little_data():
    return {"x": _dataset(16 * 70).batch(BATCH), "steps_per_epoch": 30}


def generator():
    def batches():
        x, y = arrays()
        while True:
            for start in range(0, len(x), BATCH):
                yield x[start : start + BATCH], y[start : start + BATCH]

    return {"x": batches(), "steps_per_epoch": 25}


class Sequence(keras.utils.Sequence if not KERAS_3 else keras.utils.PyDataset):
    """Twenty-five batches that differ from epoch to epoch."""

    def __init__(self):
        if KERAS_3:
            super().__init__()
        self.x, self.y = arrays()
        self.epoch = 0

    def __len__(self):
        return 25

    def __getitem__(self, index):
        chosen = slice(index * BATCH, (index + 1) * BATCH)
        return self.x[chosen] + self.epoch, self.y[chosen]

    def on_epoch_end(self):
        self.epoch += 1


def sequence():
    return {"x": Sequence(), "shuffle": False}


def changing_shapes():
    def batches():
        x, y = arrays()
        start = 0
        for size in [16, 3, 9, 16, 1, 12] * 6:
            yield x[start : start + size], y[start : start + size]
            start += size

    specs = (
        tf.TensorSpec((None, FEATURES), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    return {"x": tf.data.Dataset.from_generator(batches, output_signature=specs)}


def one_batch_per_epoch():
    return {"x": _dataset(BATCH).batch(BATCH)}


def dicts():
    x, y = arrays()
    slices = tf.data.Dataset.from_tensor_slices(
        ({"left": x, "right": x[:, :2]}, {"label": y, "value": x[:, :1]})
    )
    return {"x": slices.batch(BATCH), "validation_data": slices.take(40).batch(BATCH)}
