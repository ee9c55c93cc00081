"""Callbacks may train and evaluate the same model whenever they like."""

from __future__ import annotations

import pytest

from k80keras import K80Tuner
from k80keras._keras import keras, tf
from tests.conformance import data, models
from tests.conformance.compare import BatchRecorder, assert_same_training, train

C = keras.callbacks


def endless(batch=8):
    return tf.data.Dataset.from_tensor_slices(data.arrays(64)).repeat().batch(batch)


class Fits(C.Callback):
    """Trains a little before each epoch, with callbacks of its own."""

    def __init__(self, *inner):
        super().__init__()
        self.inner = inner

    def on_epoch_begin(self, epoch, logs=None):
        model = self.model
        model.fit(endless(), steps_per_epoch=3, verbose=0, callbacks=[*self.inner])
        self.set_model(model)


class Evaluates(C.Callback):
    """Evaluates on other data before each evaluation, and logs it."""

    loss = None
    busy = False

    def on_test_begin(self, logs=None):
        if not self.busy:
            self.busy = True
            self.loss = self.model.evaluate(endless(), steps=4, verbose=0)[0]
            self.busy = False

    def on_epoch_end(self, epoch, logs=None):
        logs["inner_loss"] = self.loss


@pytest.mark.parametrize("steps", ["auto", 7, None])
def test_fit_before_an_epoch(steps):
    tuner = K80Tuner(steps, jit_compile=False, verbose=0)
    assert_same_training(models.dropout, data.dataset, [Fits], tuner=tuner)
    assert tuner.result.steps == 3 * 31


def test_fit_before_an_epoch_of_a_model_that_plain_keras_has_trained():
    made = []

    def make():  # a batch hook in the first fit only
        made.append(Fits() if len(made) % 2 else BatchRecorder())
        return made[-1]

    assert_same_training(models.dropout, data.dataset, [make], fits=2)


def test_evaluate_before_an_evaluation():
    assert_same_training(models.dropout, data.dataset, [Evaluates])


def test_a_tuner_of_the_inner_fit_leaves_the_work_to_the_outer():
    inner = K80Tuner(jit_compile=False, verbose=0)
    plain = train(models.dropout, data.dataset, [Fits])
    outer = K80Tuner(jit_compile=False, verbose=0)
    tuned = train(models.dropout, data.dataset, [lambda: Fits(inner)], tuner=outer)
    assert [list(w.ravel()) for w in tuned["weights"]] == [
        list(w.ravel()) for w in plain["weights"]
    ]
    assert inner.result.status == "off" and "another" in inner.result.reason
    assert outer.result.steps == 3 * 31
