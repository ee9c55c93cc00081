"""An error in the data ends `fit`; a user may catch it and train on."""

from __future__ import annotations

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras._keras import keras, tf
from tests.conformance import data, models


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
