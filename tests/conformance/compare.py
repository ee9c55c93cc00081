"""Runs a training twice, without the tuner and with it, and compares all of it."""

from __future__ import annotations

import numpy as np

from k80keras import K80Tuner
from k80keras._keras import keras, tf

ADDED = {"steps_per_second", "input_wait_fraction"}


class Recorder(keras.callbacks.Callback):
    """Writes down the hooks that see epochs, in order."""

    def __init__(self):
        super().__init__()
        self.events = []

    def on_train_begin(self, logs=None):
        self.events.append("train begin")

    def on_epoch_begin(self, epoch, logs=None):
        self.events.append(("begin", epoch))

    def on_epoch_end(self, epoch, logs=None):
        kept = {k: float(v) for k, v in (logs or {}).items() if k not in ADDED}
        self.events.append(
            ("end", epoch, kept, int(self.model.optimizer.iterations.numpy()))
        )

    def on_test_begin(self, logs=None):
        self.events.append("test begin")

    def on_test_end(self, logs=None):
        self.events.append(("test end", {k: float(v) for k, v in (logs or {}).items()}))

    def on_train_end(self, logs=None):
        self.events.append("train end")


class BatchRecorder(Recorder):
    """Writes down each step, too: index, logs and a weight."""

    def on_train_batch_begin(self, batch, logs=None):
        self.events.append(("batch begin", batch))

    def on_train_batch_end(self, batch, logs=None):
        weight = float(np.sum(self.model.get_weights()[-1]))
        kept = {k: float(v) for k, v in (logs or {}).items()}
        self.events.append(("batch end", batch, kept, weight))


def train(build, data, callbacks=(), scope=None, fits=1, epochs=3, tuner=None):
    """Returns everything that a training leaves behind."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(11)
    with scope() if scope is not None else tf.name_scope(""):
        model = build()
    recorder = Recorder()
    histories = []
    for _ in range(fits):
        tuners = [] if tuner is None else [tuner]
        history = model.fit(
            **data(),
            epochs=epochs,
            verbose=0,
            callbacks=[recorder, *(make() for make in callbacks), *tuners],
        )
        histories.append(
            {k: v for k, v in history.history.items() if k not in ADDED | {"lr"}}
        )
    optimizer = model.optimizer
    variables = optimizer.variables
    slots = variables() if callable(variables) else variables
    return {
        "weights": [np.array(w) for w in model.get_weights()],
        "slots": [np.array(v.numpy()) for v in slots],
        "history": histories,
        "events": recorder.events,
        "iterations": int(optimizer.iterations.numpy()),
    }


def assert_several_steps_ran_at_once(result):
    """Whether a short training also decides is up to the machine's noise."""
    assert result.status in ("tuned", "undecided")
    assert max(c.steps_per_execution for c in result.candidates) > 1


def assert_same_training(build, data, callbacks=(), **options):
    """Trains without the tuner and with it; returns the tuner."""
    tuner = options.pop("tuner", None) or K80Tuner(jit_compile=False, verbose=0)
    plain = train(build, data, callbacks, **options)
    tuned = train(build, data, callbacks, tuner=tuner, **options)
    assert tuned["iterations"] == plain["iterations"]
    for name in ("weights", "slots"):
        assert len(tuned[name]) == len(plain[name])
        for ours, theirs in zip(tuned[name], plain[name]):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    np.testing.assert_equal(tuned["history"], plain["history"])
    np.testing.assert_equal(tuned["events"], plain["events"])
    return tuner
