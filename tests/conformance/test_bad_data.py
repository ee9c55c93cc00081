"""An error in the data ends `fit`; a user may catch it and train on."""

from __future__ import annotations

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras._keras import keras, tf
from tests.conformance import data, models
from tests.conformance.strategies import two_dies


def bad_dataset(batch):
    x, y = data.arrays()
    x[batch * data.BATCH] = np.nan
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(data.BATCH)
    return batches.map(lambda x, y: (tf.debugging.check_numerics(x, "bad"), y))


def train_over_an_error(build, batch, make_tuner=None):
    keras.backend.clear_session()
    keras.utils.set_random_seed(11)
    model = build()
    tuners = []
    for batches in (bad_dataset(batch), data.dataset()["x"]):
        tuners.append(make_tuner() if make_tuner else None)
        error = None
        try:
            model.fit(batches, epochs=2, verbose=0, callbacks=tuners[-1])
        except tf.errors.InvalidArgumentError as caught:
            error = "bad" in str(caught)
        tuners.append(error)
    weights = [list(w.ravel()) for w in model.get_weights()]
    outcome = (tuners[1::2], int(model.optimizer.iterations.numpy()), weights)
    return outcome, tuners[::2]


@pytest.mark.parametrize("model", [models.mlp, models.dropout], ids=["mlp", "dropout"])
@pytest.mark.parametrize(
    "batch,options",
    [
        (0, {}),
        (12, {}),
        (12, {"steps_per_execution": 5}),
        (1, {"steps_per_execution": None}),  # the second batch is a sample
        (0, {"cache_dir": "cache"}),  # the first batch is looked at beforehand
    ],
)
def test_error_in_a_batch(batch, options, model, tmp_path):
    if "cache_dir" in options:
        options = {"cache_dir": str(tmp_path)}
    plain, _ = train_over_an_error(model, batch)
    assert plain[0] == [True, None]
    # Counted, though it failed: whatever needs no data has run.
    assert plain[1] == batch + 1 + 2 * 31
    tuned, tuners = train_over_an_error(
        model, batch, lambda: K80Tuner(jit_compile=False, verbose=0, **options)
    )
    assert tuned == plain
    assert tuners[1].result.steps == 2 * 31


def test_error_in_the_batch_that_xla_is_tried_on():
    tuner = K80Tuner(steps_per_execution=4, jit_compile=True, verbose=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
        models.mlp().fit(bad_dataset(0), verbose=0, callbacks=[tuner])


def test_error_in_a_batch_for_two_dies():
    """The failing step is counted; on the second die that is up to a race."""

    def build():
        with two_dies():
            return models.mlp()

    def make_tuner():
        return K80Tuner(steps_per_execution=4, jit_compile=False, verbose=0)

    plain, _ = train_over_an_error(build, 12)
    tuned, _ = train_over_an_error(build, 12, make_tuner)
    assert tuned[0] == plain[0] == [True, None]
    assert tuned[1] == 13 + 2 * 31
    for ours, theirs in zip(tuned[2], plain[2]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-3)
