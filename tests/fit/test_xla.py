"""XLA: tried only where allowed, and without a trace where it is not kept."""

from __future__ import annotations

import time

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras._keras import keras, tf
from k80keras.fit.preflight import Preflight
from k80keras.fit.xla import why_not_compile, why_not_on
from tests.conformance import data, models
from tests.conformance.compare import assert_same_training, train
from tests.conformance.strategies import two_dies


@pytest.mark.parametrize(
    "capabilities, allowed",
    [([], True), ([(3, 7)], False), ([(8, 0), (3, 5)], False), ([(5, 0)], True)],
)
def test_veto_below_compute_capability_5(capabilities, allowed):
    reason = why_not_on(capabilities)
    assert (reason is None) == allowed
    if not allowed:
        assert "compute capability 3." in reason


def test_no_xla_with_two_replicas():
    with two_dies():
        model = models.mlp()
    assert "2 replicas" in why_not_compile(model)


@pytest.mark.slow
def test_preflight_passes_here():
    assert Preflight().wait() == ""


@pytest.mark.slow
def test_asked_for_xla_trains_the_same_within_rounding():
    tuner = K80Tuner(jit_compile=True, verbose=0)
    plain = train(models.mlp, data.numpy_arrays)
    tuned = train(models.mlp, data.numpy_arrays, tuner=tuner)
    assert tuner.result.jit_compile, tuner.result
    assert tuned["iterations"] == plain["iterations"]
    for ours, theirs in zip(tuned["weights"], plain["weights"]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [True, "auto"])
def test_tried_and_not_kept_leaves_no_trace(wanted, monkeypatch):
    """With random layers and an odd last batch, which are easily disturbed."""
    # Training is long enough for the child process, but not for its real price.
    monkeypatch.setattr("k80keras.fit.xla_trial._TYPICAL_SECONDS", 0.1)
    tuner = K80Tuner(jit_compile=wanted, trial_fraction=0.9, verbose=0)
    epochs = 3 if wanted is True else 60
    assert_same_training(beyond_xla, data.numpy_arrays, tuner=tuner, epochs=epochs)
    result = tuner.result
    assert "no XLA: it failed" in result.reason and not result.jit_compile, result


class Foreign(keras.layers.Layer):
    """Leaves TensorFlow and comes back, where XLA can't follow."""

    def call(self, inputs):
        def python(x):
            time.sleep(0.002)
            return x

        same = tf.numpy_function(python, [inputs], inputs.dtype)
        return inputs + 0.0 * tf.stop_gradient(tf.ensure_shape(same, inputs.shape))


def beyond_xla():
    layers = keras.layers
    return models._compile(
        keras.Sequential(
            [
                layers.Input((data.FEATURES,)),
                layers.Dropout(0.5),
                Foreign(),
                layers.Dense(models.CLASSES),
            ]
        )
    )


@pytest.mark.slow
def test_what_breaks_xla_is_found_in_a_child(monkeypatch):
    # The child dies of it; this process has not started XLA's parser for it.
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
    tuner = K80Tuner(jit_compile=True, verbose=0)
    tuner = assert_same_training(models.dropout, data.dataset, tuner=tuner)
    assert not tuner.result.jit_compile
    assert "test process" in tuner.result.reason


@pytest.mark.slow
def test_a_short_fit_does_not_rule_xla_out_for_a_longer_one(monkeypatch):
    tuner = K80Tuner(trial_fraction=0.9, verbose=0)
    model = beyond_xla()
    x, y = data.arrays()
    model.fit(x, y, batch_size=16, epochs=6, verbose=0, callbacks=[tuner])
    assert tuner.result.status == "tuned" and "XLA" not in tuner.result.reason
    monkeypatch.setattr("k80keras.fit.xla_trial._TYPICAL_SECONDS", 0.1)
    model.fit(x, y, batch_size=16, epochs=60, verbose=0, callbacks=[tuner])
    assert tuner.result.status == "cached"
    assert "no XLA: it failed" in tuner.result.reason
