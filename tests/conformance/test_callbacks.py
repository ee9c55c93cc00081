"""Callbacks see, and write, with the tuner what they do without it."""

from __future__ import annotations

import csv
import os

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras._keras import KERAS_3, keras, tf
from tests.conformance import data, models
from tests.conformance.compare import (
    ADDED,
    BatchRecorder,
    assert_same_training,
    assert_several_steps_ran_at_once,
    train,
)

C = keras.callbacks


class StopAt(C.Callback):
    """Stops in the middle of the second epoch."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 9 and len(self.model.history.epoch) == 1:
            self.model.stop_training = True


class StopBefore(C.Callback):
    """Stops before the second epoch's first step, which plain Keras still runs."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.stop_training = epoch == 1


class StopEvaluating(C.Callback):
    """Evaluates one batch only from the second epoch on; Keras 2 ignores it."""

    def on_test_begin(self, logs=None):
        self.model.stop_evaluating = bool(self.model.history.epoch)


class Meddler(C.Callback):
    """Uses the model between epochs, as users do."""

    def on_epoch_begin(self, epoch, logs=None):
        x, y = data.arrays(64)
        self.model.train_on_batch(x[:16], y[:16])

    def on_epoch_end(self, epoch, logs=None):
        x, y = data.arrays(64)
        self.model.evaluate(x, y, batch_size=16, verbose=0)
        self.model.predict(x, verbose=0)
        self.model.train_on_batch(x[:16], y[:16])


@pytest.mark.parametrize(
    "make",
    [
        lambda: C.EarlyStopping("loss", patience=0, min_delta=1.0),
        lambda: C.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
        lambda: C.ReduceLROnPlateau("loss", patience=1, min_delta=1.0),
        StopBefore,
        StopEvaluating,
        Meddler,
    ],
    ids=[
        "EarlyStopping",
        "LearningRateScheduler",
        "ReduceLROnPlateau",
        "StopBefore",
        "StopEvaluating",
        "Meddler",
    ],
)
def test_epoch_callbacks_do_not_pin(make):
    tuner = assert_same_training(models.dropout, data.dataset, [make])
    if make is not StopBefore:
        assert_several_steps_ran_at_once(tuner.result)


@pytest.mark.parametrize(
    "make",
    [
        BatchRecorder,
        StopAt,
        C.TerminateOnNaN,
        lambda: C.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
    ],
    ids=["BatchRecorder", "StopAt", "TerminateOnNaN", "LambdaCallback"],
)
def test_who_looks_at_each_batch_pins(make):
    tuner = assert_same_training(models.dropout, data.dataset, [make])
    assert tuner.result.status == "pinned"
    assert tuner.result.steps_per_execution == 1
    assert tuner.result.input_wait_fraction is not None


def test_batch_hooks_see_every_step():
    recorders = []

    def make():
        recorders.append(BatchRecorder())
        return recorders[-1]

    assert_same_training(models.mlp, data.dataset, [make])
    plain, tuned = recorders
    assert tuned.events == plain.events
    assert len([e for e in tuned.events if e[0] == "batch end"]) == 3 * 31


def test_pinned_fit_then_free_fits():
    made = []

    def make():  # a batch hook in the first fit only
        made.append(BatchRecorder() if len(made) % 3 == 0 else C.History())
        return made[-1]

    tuner = assert_same_training(models.dropout, data.dataset, [make], fits=3)
    if KERAS_3:  # all random state is in variables
        assert tuner.result.status != "off"
    else:
        assert tuner.result.status == "off" and "compile()" in tuner.result.reason


def test_free_fit_then_pinned_fit():
    made = []

    def make():
        made.append(BatchRecorder() if len(made) % 2 else C.History())
        return made[-1]

    assert_same_training(models.dropout, data.dataset, [make], fits=2)


@pytest.mark.parametrize("frequency", [1, 7, 40])
def test_checkpoints_between_epochs(tmp_path, frequency):
    """An integer `save_freq` needs its own steps and no others."""

    def files(name, tuner):
        folder = tmp_path / name
        path = str(folder / "e{epoch}-b{batch}-{loss:.6f}.weights.h5")
        train(
            models.dropout,
            data.dataset,
            [
                lambda: C.ModelCheckpoint(
                    path, save_weights_only=True, save_freq=frequency
                )
            ],
            tuner=tuner,
        )
        found = {}
        for file in sorted(os.listdir(folder)):
            reader = models.dropout()
            reader.load_weights(str(folder / file))
            found[file] = reader.get_weights()
        return found

    tuner = K80Tuner(jit_compile=False, verbose=0)
    plain, tuned = files("plain", None), files("tuned", tuner)
    assert list(tuned) == list(plain)
    assert len(plain) == 3 * 31 // frequency
    for name, weights in plain.items():
        for ours, theirs in zip(tuned[name], weights):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


class SavesAtWill(C.ModelCheckpoint):
    """Decides by itself after which batches to save."""

    def __init__(self, seen):
        super().__init__("unused.keras", save_freq=10)
        self.seen = seen

    def _should_save_on_batch(self, batch):
        self.seen.append(float(np.sum(self.model.get_weights()[-1])))
        return False

    def _save_model(self, *args, **kwargs):
        pass


def test_a_checkpoint_that_decides_by_itself():
    seen = []
    tuner = assert_same_training(models.mlp, data.dataset, [lambda: SavesAtWill(seen)])
    assert len(seen) == 2 * 3 * 31 and seen[: 3 * 31] == seen[3 * 31 :]
    assert tuner.result.status == "pinned" and "SavesAtWill" in tuner.result.reason


def test_best_checkpoint_and_csv(tmp_path):
    def files(name, tuner):
        log, best = tmp_path / f"{name}.csv", tmp_path / f"{name}.weights.h5"
        train(
            models.mlp,
            data.dataset,
            [
                lambda: C.CSVLogger(str(log)),
                lambda: C.ModelCheckpoint(
                    str(best), save_weights_only=True, save_best_only=True
                ),
            ],
            tuner=tuner,
        )
        with open(log, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        reader = models.mlp()
        reader.load_weights(str(best))
        return rows, reader.get_weights()

    plain_rows, plain_best = files("plain", None)
    tuned_rows, tuned_best = files("tuned", K80Tuner(jit_compile=False, verbose=0))
    # The tuner was last in the list and is still seen from epoch 0 on.
    assert all(float(row["steps_per_second"]) > 0 for row in tuned_rows)
    assert all(0 <= float(row["input_wait_fraction"]) <= 1 for row in tuned_rows)
    cut = [{k: v for k, v in r.items() if k not in ADDED} for r in tuned_rows]
    assert cut == plain_rows
    for ours, theirs in zip(tuned_best, plain_best):
        np.testing.assert_array_equal(ours, theirs)


def _scalars(folder):
    found = {}
    for root, _, names in os.walk(folder):
        for file in sorted(names):
            if "tfevents" not in file:
                continue
            kind = os.path.basename(root)
            for event in tf.compat.v1.train.summary_iterator(os.path.join(root, file)):
                for value in event.summary.value:
                    number = tf.make_ndarray(value.tensor)
                    key = (kind, value.tag, event.step)
                    if number.dtype.kind == "f":
                        found[key] = float(number)
                if event.HasField("graph_def") and event.graph_def:
                    found[(kind, "graph", 0)] = found.get((kind, "graph", 0), 0) + 1
    return found


@pytest.mark.parametrize("frequency", ["epoch", "batch", 5])
def test_tensorboard(tmp_path, frequency):
    pytest.importorskip("tensorboard")

    def board(name, tuner):
        folder = str(tmp_path / name)
        train(
            models.mlp,
            data.dataset,
            [lambda: C.TensorBoard(folder, update_freq=frequency)],
            tuner=tuner,
        )
        return _scalars(folder)

    tuner = K80Tuner(jit_compile=False, verbose=0)
    plain, tuned = board("plain", None), board("tuned", tuner)
    if frequency == "epoch":
        assert_several_steps_ran_at_once(tuner.result)
    else:
        assert tuner.result.status == "pinned"
    shown = {tag for _, tag, _ in tuned}
    if "epoch_loss" in shown:  # Keras 3 leaves epochs out for an integer
        assert {"epoch_steps_per_second", "epoch_input_wait_fraction"} <= shown
    assert {k: v for k, v in tuned.items() if k[1][6:] not in ADDED} == plain


class Interrupt(C.Callback):
    """Ends the first fit after two and a half epochs, between two hooks."""

    armed = True

    def on_train_batch_end(self, batch, logs=None):
        if Interrupt.armed and self.model.optimizer.iterations.numpy() >= 77:
            Interrupt.armed = False
            raise RuntimeError("the power went out")


@pytest.mark.parametrize("frequency", ["epoch", 10])
def test_backup_and_restore(tmp_path, frequency):
    """The second fit goes on in the middle of an epoch, where Keras does so."""

    def run(name, tuner):
        Interrupt.armed = True
        keras.utils.set_random_seed(3)
        model = models.mlp()

        def fit(*more):
            backup = C.BackupAndRestore(str(tmp_path / name), save_freq=frequency)
            tuners = [] if tuner is None else [tuner]
            model.fit(
                data._dataset().batch(16),
                epochs=4,
                verbose=0,
                callbacks=[backup, *more, *tuners],
            )

        with pytest.raises(RuntimeError, match="power"):
            fit(Interrupt())
        fit()
        return model.get_weights(), int(model.optimizer.iterations.numpy())

    plain, plain_iterations = run("plain", None)
    tuned, tuned_iterations = run("tuned", K80Tuner(jit_compile=False, verbose=0))
    assert tuned_iterations == plain_iterations
    for ours, theirs in zip(tuned, plain):
        np.testing.assert_array_equal(ours, theirs)
