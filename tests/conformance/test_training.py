"""Training is the same with the tuner as without it, bit for bit.

Models, data and strategies; callbacks have a file of their own.
"""

from __future__ import annotations

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras._keras import KERAS_3, keras, tf
from tests.conformance import data, models
from tests.conformance.compare import (
    assert_same_training,
    assert_several_steps_ran_at_once,
    train,
)
from tests.conformance.strategies import two_dies, two_dies_without_collectives

MODELS = [
    models.sgd_with_schedule,
    models.dropout,
    models.dropout_with_seed,
    models.batch_norm_cnn,
    models.lstm,
    models.added_losses,
    models.mixed_float16,
    models.custom_train_step,
    models.deferred_build,
]
DATA = [
    data.numpy_arrays,
    data.numpy_with_weights,
    data.numpy_with_class_weight,
    data.static_shapes,
    data.unknown_length,
    data.unknown_length_that_varies,
    data.infinite,
    data.epochs_that_share_an_iterator,
    data.too_little_data,
    data.generator,
    data.sequence,
    data.changing_shapes,
    data.one_batch_per_epoch,
]


def name(value):
    return getattr(value, "__name__", None)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_models(model):
    tuner = assert_same_training(model, data.dataset)
    assert_several_steps_ran_at_once(tuner.result)
    assert tuner.result.steps == 3 * 31


@pytest.mark.parametrize("source", DATA, ids=name)
def test_data(source):
    assert_same_training(models.mlp, source)


@pytest.mark.parametrize("model", [models.dropout, models.dropout_with_seed], ids=name)
@pytest.mark.parametrize(
    "source", [data.unknown_length, data.unknown_length_static], ids=name
)
def test_random_layers_and_unknown_length(model, source):
    assert_same_training(model, source)


def test_stateful_rnn():
    assert_same_training(models.stateful_rnn, data.static_shapes)


def test_dict_inputs_and_two_outputs():
    assert_same_training(models.dict_inputs_two_outputs, data.dicts)


@pytest.mark.parametrize("model", [models.mlp, models.dropout_with_seed], ids=name)
def test_second_fit_goes_on(model):
    # 186 steps: the trial is over by then, however noisy.
    tuner = assert_same_training(model, data.dataset, fits=2, epochs=6)
    assert tuner.result.status == "cached"


def test_second_fit_with_other_data():
    sources = iter([data.dataset, data.static_shapes] * 2)
    assert_same_training(models.dropout_with_seed, lambda: next(sources)(), fits=2)


@pytest.mark.parametrize(
    "model",
    [
        models.mlp,
        models.dropout,
        models.dropout_with_seed,
        models.batch_norm_cnn,
        models.mixed_float16,
        models.custom_train_step,
    ],
    ids=name,
)
def test_two_dies(model):
    tuner = assert_same_training(model, data.dataset, scope=two_dies)
    assert_several_steps_ran_at_once(tuner.result)


@pytest.mark.parametrize(
    "source",
    [
        data.numpy_arrays,
        data.numpy_with_weights,
        data.infinite,
        data.too_little_data,
        # Keras 3 first peeks at the data, and how many batches a generator has lost
        # to prefetching by then is not repeatable in plain Keras.
        *([] if KERAS_3 else [data.generator]),
    ],
    ids=name,
)
def test_two_dies_data(source):
    assert_same_training(models.mlp, source, scope=two_dies)


@pytest.mark.parametrize("scope", [two_dies, two_dies_without_collectives], ids=name)
@pytest.mark.parametrize(
    "model", [models.dropout_with_seed, models.batch_norm_cnn], ids=name
)
def test_two_dies_and_shapes_that_are_known(model, scope):
    assert_same_training(model, data.static_shapes, scope=scope)


@pytest.mark.parametrize(
    "source", [data.unknown_length, data.changing_shapes], ids=name
)
def test_two_dies_to_the_end_of_the_data(source):
    """Within rounding: plain Keras itself is not repeatable here.

    The step beyond the end fails on two dies at once, and how far each of them
    gets is up to the scheduler. Of 99 plain trainings with Keras 3, one ended an
    epoch with 56 iterations on one die and 55 on the other, and its weights
    apart by 1e-6.
    """
    plain = train(models.mlp, source, scope=two_dies)
    tuner = K80Tuner(jit_compile=False, verbose=0)
    tuned = train(models.mlp, source, scope=two_dies, tuner=tuner)
    assert_several_steps_ran_at_once(tuner.result)
    assert tuned["iterations"] == plain["iterations"]
    for ours, theirs in zip(tuned["weights"], plain["weights"]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", [models.dropout, models.dropout_with_seed], ids=name)
@pytest.mark.parametrize("source", [data.dataset, data.static_shapes], ids=name)
def test_one_device_strategy(model, source):
    strategy = tf.distribute.OneDeviceStrategy
    assert_same_training(model, source, scope=lambda: strategy("CPU:1").scope())


@pytest.mark.parametrize("steps", [1, 3, 16, 500])
def test_any_fixed_number_of_steps(steps):
    tuner = K80Tuner(steps_per_execution=steps, jit_compile=False, verbose=0)
    assert_same_training(models.dropout_with_seed, data.dataset, tuner=tuner)
    assert tuner.result.status == "pinned" or steps == 1


def test_keras_is_the_one_of_tensorflow():
    assert keras is tf.keras or keras.Model is tf.keras.Model
