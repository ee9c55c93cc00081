"""Steps and models that no loop was made for: the training stays the same."""

from __future__ import annotations

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras._keras import KERAS_3, keras, tf
from tests.conformance import data, models
from tests.conformance.compare import (
    assert_same_training,
    assert_several_steps_ran_at_once,
)

L = keras.layers


class Reports(keras.Model):
    """Adds `odd` to its logs."""

    def train_step(self, batch):
        logs = super().train_step(batch)
        return {**logs, "odd": self.odd(logs["loss"])}


def reports(odd):
    inputs = keras.Input((data.FEATURES,))
    hidden = L.Dropout(0.3, seed=7)(L.Dense(16)(inputs))
    model = Reports(inputs, L.Dense(models.CLASSES)(hidden))
    model.odd = odd
    return models._compile(model, jit_compile=False)


def test_logs_of_unknown_rank():
    def build():
        return reports(lambda loss: tf.numpy_function(lambda v: v, [loss], tf.float32))

    tuner = assert_same_training(build, data.dataset)
    assert_several_steps_ran_at_once(tuner.result)


def fit_twice(build, source, tuner):
    """Without the tuner and with it; returns whether all weights are equal."""
    results = []
    for callbacks in ([], [tuner]):
        keras.utils.set_random_seed(3)
        model = build()
        model.fit(source(), epochs=2, verbose=0, callbacks=callbacks)
        results.append(model.get_weights())
    return all(np.array_equal(*pair) for pair in zip(*results))


def test_logs_that_are_ragged():
    def build():
        return reports(lambda loss: tf.RaggedTensor.from_row_lengths([loss], [1]))

    tuner = K80Tuner(jit_compile=False, verbose=0)
    assert fit_twice(build, lambda: data.dataset()["x"], tuner)
    assert_several_steps_ran_at_once(tuner.result)


@pytest.mark.skipif(KERAS_3, reason="plain Keras 3 takes no such batches")
def test_where_the_step_cannot_be_traced_plain_keras_trains_as_ever():
    """The trace that failed has drawn the layer's seed."""

    class Sparse(keras.Model):
        def __init__(self):
            super().__init__()
            self.dropout = L.Dropout(0.2, seed=5)
            self.dense = L.Dense(models.CLASSES)

        def call(self, x, training=None):
            dense = tf.sparse.to_dense(x)
            return self.dense(self.dropout(dense, training=training))

    x, y = data.arrays()
    slices = (tf.sparse.from_dense(np.maximum(x, 0)), y)

    def source():
        return tf.data.Dataset.from_tensor_slices(slices).batch(data.BATCH)

    tuner = K80Tuner(jit_compile=False, verbose=0)
    assert fit_twice(lambda: models._compile(Sparse()), source, tuner)
    assert tuner.result.status == "off" and "failed" in tuner.result.reason
    assert len(tuner.result.reason.splitlines()) == 1


class AlwaysDrops(L.Layer):
    """Monte Carlo dropout: random in evaluation, too."""

    def __init__(self):
        super().__init__()
        self.dropout = L.Dropout(0.4)

    def call(self, x):
        return self.dropout(x, training=True)


@pytest.mark.parametrize("evaluated_before", [False, True])
def test_random_evaluation(evaluated_before):
    def build():
        layers = [L.Input((data.FEATURES,)), AlwaysDrops(), L.Dense(models.CLASSES)]
        model = models._compile(keras.Sequential(layers))
        if evaluated_before:
            model.evaluate(data.dataset()["validation_data"], verbose=0)
        return model

    assert_same_training(build, data.dataset, fits=2)


def test_a_metric_may_have_the_name_of_ours():
    class Pace(keras.metrics.Mean):
        def update_state(self, y_true, y_pred, sample_weight=None):
            return super().update_state(-1.0)

    model = models.mlp()
    model.compile("adam", "mse", metrics=[Pace(name="steps_per_second")])
    x, _ = data.arrays()
    tuner = K80Tuner(verbose=0)
    y = np.zeros((len(x), models.CLASSES))
    history = model.fit(x, y, verbose=0, callbacks=[tuner]).history
    assert history["steps_per_second"] == [-1.0]


def test_functions_that_run_eagerly():
    tf.config.run_functions_eagerly(True)
    try:
        tuner = assert_same_training(models.dropout, data.one_batch_per_epoch)
    finally:
        tf.config.run_functions_eagerly(False)
    assert tuner.result.status == "off" and "eagerly" in tuner.result.reason


def test_a_callback_list_of_a_kind_of_its_own():
    seen = []

    class Watching(keras.callbacks.CallbackList):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(int(self.model.optimizer.iterations.numpy()))
            super().on_train_batch_end(batch, logs)

    model = models.mlp()
    tuner = K80Tuner(verbose=0)
    watching = Watching([tuner], add_history=True, model=model, epochs=1, steps=31)
    model.fit(data.dataset()["x"], verbose=0, callbacks=watching)
    assert seen == list(range(1, 32))
    assert tuner.result.status == "pinned" and "Watching" in tuner.result.reason


class CountsTests(keras.Sequential):
    tests = 0

    def test_step(self, batch):
        self.tests += 1
        return super().test_step(batch)


def test_evaluation_is_made_when_it_is_needed():
    """What is set after a `fit` without validation still counts."""
    counts = []
    for callbacks in ([], [K80Tuner(jit_compile=False, verbose=0)]):
        model = models._compile(CountsTests([L.Dense(models.CLASSES)]))
        model.fit(data.dataset()["x"], verbose=0, callbacks=callbacks)
        assert model.test_function is None
        model.run_eagerly = True
        model.evaluate(data.dataset()["validation_data"], verbose=0)
        counts.append(model.tests)
    assert counts == [7, 7]
