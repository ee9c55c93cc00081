"""K80Tuner's manners: what it keeps its hands off, and how it ends."""

from __future__ import annotations

import gc
import json
import signal
import threading
import time

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras._keras import KERAS_3, keras, tf
from k80keras.errors import InvalidArgumentError
from k80keras.fit.observer import Observer
from k80keras.fit.stepper import Stepper
from tests.conformance import data, models
from tests.conformance.compare import (
    assert_same_training,
    assert_several_steps_ran_at_once,
)

C = keras.callbacks


def fit(model, *callbacks, source=data.dataset, **options):
    options = {"epochs": 3, "verbose": 0, **options}
    return model.fit(**source(), callbacks=list(callbacks), **options)


def assert_restored(model):
    for name in ("train_function", "test_function"):
        assert not isinstance(getattr(model, name), (Stepper, Observer)), name
    fit(model, epochs=1)


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"steps_per_execution": 0}, "steps_per_execution=0"),
        ({"steps_per_execution": 2.5}, "steps_per_execution=2.5"),
        ({"steps_per_execution": "fast"}, "steps_per_execution='fast'"),
        ({"steps_per_execution": True}, "steps_per_execution=True"),
        ({"jit_compile": "yes"}, "jit_compile='yes'"),
        ({"trial_fraction": 1.0}, "trial_fraction=1.0"),
        ({"trial_fraction": "3%"}, "trial_fraction='3%'"),
        ({"report_path": "/no/such/folder/report.json"}, "report_path="),
    ],
)
def test_bad_arguments_name_rule_value_and_cure(arguments, named):
    with pytest.raises(InvalidArgumentError, match="must be") as caught:
        K80Tuner(**arguments)
    assert f"Received: {named}" in str(caught.value)


def test_says_what_it_decided_in_one_line(capsys):
    tuner = K80Tuner(jit_compile=False)
    fit(models.mlp(), tuner)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(
        f"K80Tuner: steps_per_execution={tuner.result.steps_per_execution}"
    )


@pytest.mark.parametrize("steps", [4, "auto"])
def test_compile_pins_steps_per_execution(steps):
    if KERAS_3 and steps == "auto":
        pytest.skip("Keras 3 has no steps_per_execution='auto'")
    tuner = assert_same_training(
        lambda: models._compile(models.mlp(), steps_per_execution=steps),
        data.static_shapes,
    )
    assert tuner.result.status == "pinned"
    assert repr(steps) in tuner.result.reason
    assert tuner.result.steps == 3 * 30
    assert tuner.result.steps_per_execution == (1 if steps == "auto" else 4)


def test_compile_pins_jit_compile():
    tuner = K80Tuner(jit_compile="auto", trial_fraction=0.9, verbose=0)
    model = models._compile(models.mlp(), jit_compile=True)
    fit(model, tuner)
    assert_several_steps_ran_at_once(tuner.result)
    assert tuner.result.jit_compile
    assert all(not c.jit_compile for c in tuner.result.candidates)


class OwnLoop(keras.Sequential):
    def make_train_function(self, force=False):
        return super().make_train_function(force)


def test_off_for_what_it_does_not_understand(capsys):
    eager = models._compile(models.mlp(), run_eagerly=True)
    own = OwnLoop([keras.layers.Dense(models.CLASSES)])
    wrapped = models.mlp()
    wrapped.make_train_function()
    kept = wrapped.train_function
    wrapped.train_function = lambda iterator: kept(iterator)
    for model, reason in (
        (eager, "eagerly"),
        (models._compile(own), "OwnLoop"),
        (wrapped, "train_function is not what Keras made"),
    ):
        tuner = K80Tuner()
        before = model.train_function
        history = fit(model, tuner, epochs=2)
        assert tuner.result.status == "off"
        assert reason in tuner.result.reason
        assert len(capsys.readouterr().out.splitlines()) == 1
        assert len(history.history["steps_per_second"]) == 2
        assert not isinstance(model.train_function, Stepper), before


@pytest.mark.parametrize("steps", [None, False])
def test_none_leaves_training_alone(steps):
    tuner = K80Tuner(steps_per_execution=steps, verbose=0)
    assert_same_training(models.dropout, data.dataset, tuner=tuner)
    assert tuner.result.status == "off"
    assert tuner.result.steps == 93


def test_no_trial_without_a_budget():
    tuner = K80Tuner(trial_fraction=0, verbose=0)
    assert_same_training(models.dropout, data.dataset, tuner=tuner)
    assert tuner.result.status == "off"


def test_report_is_json(tmp_path):
    path = tmp_path / "tuning.json"
    tuner = K80Tuner(report_path=path, verbose=0)
    fit(models.mlp(), tuner)
    assert json.loads(path.read_text()) == json.loads(tuner.result.to_json())
    assert [p.name for p in tmp_path.iterdir()] == ["tuning.json"]
    assert tuner.result.environment["tensorflow"] == tf.__version__


class Raise(C.Callback):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()])
def test_an_error_between_epochs_restores(error):
    model = models.mlp()
    with pytest.raises(type(error)):
        fit(model, K80Tuner(verbose=0), Raise(error))
    error.__traceback__ = None
    gc.collect()
    assert_restored(model)


def test_ctrl_c_in_the_middle_restores():
    # A shell starts background jobs with Ctrl-C ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    model = models.mlp()
    data_source = data.infinite()
    timer = threading.Timer(
        2.0, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    )
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        model.fit(
            data_source["x"],
            steps_per_epoch=10**7,
            verbose=0,
            callbacks=[K80Tuner(verbose=0)],
        )
    signal.signal(signal.SIGINT, before)
    # An execution lasts about a second at most; the rest is slack.
    assert time.monotonic() - started < 30
    gc.collect()
    assert_restored(model)


@pytest.mark.parametrize("steps", ["auto", 16])
def test_an_error_in_the_data_leaves_the_earlier_steps_whole(steps):
    def broken():
        x, y = data.arrays()
        for i in range(60):
            if i == 43:
                raise ValueError("a bad file")
            yield x[8 * i : 8 * i + 8], y[8 * i : 8 * i + 8]

    specs = (
        tf.TensorSpec((None, data.FEATURES), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    results = []
    for callbacks in ([], [K80Tuner(steps, jit_compile=False, verbose=0)]):
        keras.utils.set_random_seed(2)
        model = models._compile(models.mlp(), keras.optimizers.SGD(0.1))
        dataset = tf.data.Dataset.from_generator(broken, output_signature=specs)
        with pytest.raises(tf.errors.InvalidArgumentError, match="a bad file"):
            model.fit(dataset, verbose=0, callbacks=callbacks)
        results.append(model.get_weights())
    for ours, theirs in zip(*results):
        np.testing.assert_array_equal(ours, theirs)
    assert_restored(model)


def test_the_models_own_error_is_the_users_to_read():
    model = models.mlp()
    wrong = {"x": np.zeros((64, 3), "float32"), "y": np.zeros(64)}
    messages = []
    for callbacks in ([], [K80Tuner(verbose=0)]):
        with pytest.raises(ValueError) as caught:
            model.fit(**wrong, verbose=0, callbacks=callbacks)
        messages.append(str(caught.value)[-200:])
    assert messages[0] == messages[1]
    assert_restored(models._compile(model))  # plain Keras wants that, too


@pytest.mark.parametrize("after", [0, 1, 15, 25])
def test_a_failure_of_the_tuners_own_ends_only_the_tuner(after, monkeypatch, capsys):
    """A clock that breaks stands for any mistake in the tuner."""
    from k80keras.fit import session

    calls = [0]

    def clock():
        calls[0] += 1
        if after and calls[0] > after:
            raise OSError("the clock has stopped")
        return time.perf_counter()

    def make():
        calls[0] = 0
        return K80Tuner(jit_compile=False)

    if after:
        real = session.FitSession
        monkeypatch.setattr(
            "k80keras.callbacks.k80_tuner.FitSession",
            lambda *args: real(*args, clock=clock),
        )
    else:  # the very first thing that it does
        monkeypatch.setattr("k80keras._keras.why_not_fusable", lambda model: 1 / 0)
    tuner = assert_same_training(models.dropout, data.dataset, tuner=make())
    assert tuner.result.status == "off"
    printed = capsys.readouterr().out
    assert printed.count("training goes on without it") == 1


def test_two_tuners_do_not_wrap_each_other():
    model = models.mlp()
    first, second = K80Tuner(verbose=0), K80Tuner(verbose=0)
    fit(model, first, second)
    assert_several_steps_ran_at_once(first.result)
    assert first.result.steps == 93
    assert second.result.status == "off" and "another" in second.result.reason
    assert_restored(model)


def test_a_model_is_freed_after_its_fit():
    import weakref

    model = models.mlp()
    fit(model, K80Tuner(verbose=0))
    reference = weakref.ref(model)
    del model
    keras.backend.clear_session()
    gc.collect()
    assert reference() is None


def test_a_trained_model_saves_and_copies(tmp_path):
    model = models.mlp()
    fit(model, K80Tuner(verbose=0))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x, _ = data.arrays(10)
    np.testing.assert_array_equal(
        model.predict(x, verbose=0), again.predict(x, verbose=0)
    )
