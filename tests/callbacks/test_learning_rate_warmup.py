"""The rate that each step uses is read off the weight, which moves by it."""

from __future__ import annotations

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras._keras import KERAS_3, keras, tf
from k80keras.callbacks import LearningRateWarmup
from k80keras.errors import InvalidArgumentError
from tests.conformance import data, models
from tests.conformance.compare import assert_several_steps_ran_at_once, train
from tests.conformance.strategies import two_dies

STEPS = 10  # in an epoch


class Rates(keras.callbacks.Callback):
    """Notes the rate of each step, and the rate that others see."""

    def __init__(self):
        super().__init__()
        self.weights, self.seen = [0.0], []

    @property
    def used(self):
        return np.diff(self.weights)

    def on_train_batch_end(self, batch, logs=None):
        self.weights.append(float(self.model.get_weights()[0][0, 0]))

    def on_epoch_end(self, epoch, logs=None):
        rate = self.model.optimizer.learning_rate
        self.seen.append(float(tf.convert_to_tensor(rate)))
        self.logs = dict(logs)


def line(optimizer, **options):
    """Returns a model of one weight, whose gradient is always -1."""
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.compile(optimizer, loss=lambda y, p: tf.reduce_mean(-p), **options)
    return model


def ones(batch_size=4):
    x = np.ones((batch_size * STEPS, 1), "float32")
    return {"x": x, "y": x, "batch_size": batch_size, "shuffle": False, "verbose": 0}


def fit(model, *callbacks, epochs=2, **options):
    rates = Rates()
    callbacks = [*callbacks, rates]
    model.fit(**{**ones(), **options}, epochs=epochs, callbacks=callbacks)
    return rates


def warmup(num_replicas=3, warmup_epochs=1, **options):
    return LearningRateWarmup(
        num_replicas=num_replicas, warmup_epochs=warmup_epochs, verbose=0, **options
    )


# Of Goyal et al. 2017, section 2.2: from 1 to 3 in equal steps of one epoch.
RAMP = np.concatenate([np.arange(1.0, 3.0, 0.2), np.full(STEPS, 3.0)])


def test_rises_step_by_step_and_stays():
    rates = fit(line(keras.optimizers.SGD(0.5)), warmup())
    np.testing.assert_allclose(rates.used, 0.5 * RAMP, rtol=1e-5)
    assert rates.seen == [0.5, 0.5]
    assert rates.logs["scaled_learning_rate"] == 1.5


@pytest.mark.parametrize(
    "epochs, expected",
    [(0, np.full(20, 3.0)), (0.5, [1, 1.4, 1.8, 2.2, 2.6] + [3] * 15)],
    ids=["at once", "half an epoch"],
)
def test_other_lengths(epochs, expected):
    rates = fit(line(keras.optimizers.SGD(0.5)), warmup(warmup_epochs=epochs))
    np.testing.assert_allclose(rates.used, 0.5 * np.array(expected), rtol=1e-5)


def test_leaves_the_optimizer_as_it_was():
    optimizer = keras.optimizers.SGD(0.5)
    model = line(optimizer)
    fit(model)
    before = set(vars(optimizer))
    fit(model, warmup())
    assert type(optimizer) is keras.optimizers.SGD
    assert set(vars(optimizer)) == before
    np.testing.assert_allclose(fit(model).used[1:], np.full(19, 0.5), rtol=1e-5)


def test_of_a_model_that_has_trained_and_of_one_that_failed():
    model = line(keras.optimizers.SGD(0.5))
    fit(model)

    def stop(batch, logs):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fit(model, warmup(), keras.callbacks.LambdaCallback(on_train_batch_end=stop))
    for _ in range(2):
        model.compile(model.optimizer, loss=model.loss)
        model.set_weights([np.zeros((1, 1))])
        np.testing.assert_allclose(fit(model, warmup()).used, 0.5 * RAMP, rtol=1e-5)


def test_base_learning_rate_is_the_optimizers():
    model = line(keras.optimizers.SGD(0.1))
    rates = fit(model, warmup(base_learning_rate=0.5))
    np.testing.assert_allclose(rates.used, 0.5 * RAMP, rtol=1e-5)
    assert rates.seen == [0.5, 0.5]


def test_scales_a_schedule():
    own = np.repeat([0.5, 0.25, 0.125, 0.0625], 5)
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [4, 9, 14], [0.5, 0.25, 0.125, 0.0625]
    )
    rates = fit(line(keras.optimizers.SGD(schedule)), warmup())
    np.testing.assert_allclose(rates.used, own * RAMP, rtol=1e-5)
    # 20 steps are done, and the schedule goes on.
    assert rates.logs["scaled_learning_rate"] == pytest.approx(3 * 0.0625)


def test_scales_what_callbacks_set():
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: 0.5 / (epoch + 1))
    plateau = keras.callbacks.ReduceLROnPlateau(
        "loss", factor=0.5, patience=1, min_delta=1e9, cooldown=0
    )
    rates = fit(line(keras.optimizers.SGD(1.0)), warmup(), scheduler)
    np.testing.assert_allclose(rates.used, np.repeat([0.5, 0.25], 10) * RAMP, 1e-5)
    rates = fit(line(keras.optimizers.SGD(0.5)), warmup(), plateau, epochs=3)
    assert rates.seen == [0.5, 0.25, 0.125]
    own = np.repeat([0.5, 0.5, 0.25], 10)
    np.testing.assert_allclose(rates.used, own * [*RAMP, *[3] * 10], rtol=1e-5)


def test_weight_decay_and_adam_use_the_scaled_rate():
    model = line(keras.optimizers.AdamW(0.001, weight_decay=0.1, epsilon=0.0))
    model.set_weights([np.ones((1, 1))])
    weights = [1.0]
    for factor in RAMP:
        rate = 0.001 * factor
        # The gradient is always -1, so Adam moves by the rate.
        weights.append(weights[-1] * (1 - 0.1 * rate) + rate)
    rates = fit(model, warmup())
    np.testing.assert_allclose(rates.weights[1:], weights[1:], rtol=1e-5)


def test_each_replica_of_a_strategy_uses_it():
    with two_dies():
        model = line(keras.optimizers.SGD(0.5))
    rates = fit(model, LearningRateWarmup(warmup_epochs=1, verbose=0))
    # Keras sums the gradients of a loss that is averaged by hand.
    ramp = np.concatenate([np.arange(1.0, 2.0, 0.1), np.full(STEPS, 2.0)])
    np.testing.assert_allclose(rates.used / rates.used[0], ramp, rtol=1e-5)


def test_with_a_loss_scale():
    keras.mixed_precision.set_global_policy("mixed_float16")
    rates = fit(line(keras.optimizers.SGD(0.5), jit_compile=False), warmup())
    np.testing.assert_allclose(rates.used, 0.5 * RAMP, rtol=1e-3)


def test_an_update_that_xla_compiles():
    optimizer = keras.optimizers.SGD(0.5)
    if not KERAS_3:
        optimizer.jit_compile = True
    model = line(optimizer, jit_compile=True)
    fit(model)  # plain, so that a trace is there
    model.set_weights([np.zeros((1, 1))])
    np.testing.assert_allclose(fit(model, warmup()).used, 0.5 * RAMP, rtol=1e-5)


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 accumulates no gradients")
def test_counts_batches_and_not_updates():
    optimizer = keras.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    rates = fit(line(optimizer), warmup())
    np.testing.assert_allclose(rates.used[::2], np.zeros(10))
    np.testing.assert_allclose(rates.used[1::2], 0.5 * RAMP[1::2], rtol=1e-5)


class Fussy(keras.Model):
    """Has a step that only AutoGraph understands."""

    @tf.function
    def train_step(self, data):
        x, _ = data
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        if loss > 1e9:
            return {"loss": loss}
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def test_a_train_step_of_the_users_own():
    plain = line(keras.optimizers.SGD(0.5))
    model = Fussy(plain.inputs, plain.outputs)
    model.compile(keras.optimizers.SGD(0.5))
    np.testing.assert_allclose(fit(model, warmup()).used, 0.5 * RAMP, rtol=1e-5)


@pytest.mark.parametrize(
    "build", [models.sgd_with_schedule, models.mixed_float16, models.custom_train_step]
)
def test_several_steps_in_one_call_are_the_same(build):
    plain = train(build, data.dataset, [warmup])
    tuner = K80Tuner(jit_compile=False, verbose=0)
    tuned = train(build, data.dataset, [warmup], tuner=tuner)
    assert_several_steps_ran_at_once(tuner.result)
    for ours, theirs in zip(tuned["weights"], plain["weights"]):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_equal(tuned["history"], plain["history"])
    unscaled = train(build, data.dataset)
    assert not np.array_equal(unscaled["weights"][0], plain["weights"][0])


def test_several_steps_on_two_dies_are_the_same():
    plain = train(models.mlp, data.static_shapes, [warmup], scope=two_dies)
    tuner = K80Tuner(jit_compile=False, verbose=0)
    tuned = train(models.mlp, data.static_shapes, [warmup], two_dies, tuner=tuner)
    assert_several_steps_ran_at_once(tuner.result)
    for ours, theirs in zip(tuned["weights"], plain["weights"]):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_files_keep_the_users_rate(tmp_path, ending):
    path = str(tmp_path / f"model.{ending}")
    saver = keras.callbacks.ModelCheckpoint(path, save_best_only=False)
    model = line("sgd")
    model.compile(keras.optimizers.SGD(0.5), keras.losses.MeanSquaredError())
    fit(model, warmup(), saver)
    loaded = keras.models.load_model(path)
    assert float(loaded.optimizer.learning_rate) == 0.5
    assert int(loaded.optimizer.iterations) == 2 * STEPS


def test_a_resumed_training_goes_on_where_it_was(tmp_path):
    whole = fit(line(keras.optimizers.SGD(0.5)), warmup(warmup_epochs=4), epochs=5)

    def backup():
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    def stop(epoch, logs):
        if epoch == 2:
            raise KeyboardInterrupt

    first = line(keras.optimizers.SGD(0.5))
    stopper = keras.callbacks.LambdaCallback(on_epoch_begin=stop)
    with pytest.raises(KeyboardInterrupt):
        fit(first, warmup(warmup_epochs=4), backup(), stopper, epochs=5)
    second = fit(
        line(keras.optimizers.SGD(0.5)), warmup(warmup_epochs=4), backup(), epochs=5
    )
    np.testing.assert_array_equal(second.weights[1:], whole.weights[21:])


def test_an_initial_epoch_is_part_of_the_warmup():
    model = line(keras.optimizers.SGD(0.5))
    fit(model, warmup(warmup_epochs=2), epochs=1)
    rates = fit(model, warmup(warmup_epochs=2), epochs=2, initial_epoch=1)
    np.testing.assert_allclose(rates.used[1:], 0.5 * np.arange(2.1, 3.0, 0.1), 1e-5)


def test_an_evaluation_is_left_alone():
    model = line(keras.optimizers.SGD(0.1))
    fit(model, epochs=1)
    before = model.train_function
    x = ones()["x"]
    model.evaluate(x, x, verbose=0, callbacks=[warmup(base_learning_rate=0.5)])
    assert model.train_function is before
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1)


def test_says_old_and_new(capsys):
    fit(line(keras.optimizers.SGD(0.5)), LearningRateWarmup(num_replicas=2))
    told = "learning rate 0.5 -> 1 over 5 epochs (50 steps), for 2 replicas"
    assert told in capsys.readouterr().out
    fit(line(keras.optimizers.SGD(0.5)), LearningRateWarmup())
    assert "learning rate 0.5 stays, for 1 replica" in capsys.readouterr().out


def endless(batch_size):
    x = np.ones((100, 1), "float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, x)).repeat().shuffle(10)
    return dataset.batch(batch_size).prefetch(1)


def test_warns_of_steps_that_stayed_when_the_batch_grew():
    model = line(keras.optimizers.SGD(0.5))
    options = {"epochs": 1, "steps_per_epoch": 10, "verbose": 0}
    with pytest.warns(UserWarning, match="steps_per_epoch=10 goes 2 times through"):
        model.fit(endless(20), callbacks=[warmup()], **options)


@pytest.mark.filterwarnings("error:k80keras")
def test_warns_of_no_other_steps():
    model = line(keras.optimizers.SGD(0.5))
    options = {"epochs": 1, "steps_per_epoch": 10, "verbose": 0}
    model.fit(endless(10), callbacks=[warmup()], **options)
    model.fit(endless(20), callbacks=[warmup(num_replicas=1)], **options)


@pytest.mark.parametrize(
    "argument",
    [
        {"base_learning_rate": 0},
        {"base_learning_rate": float("nan")},
        {"base_learning_rate": True},
        {"num_replicas": 0},
        {"num_replicas": 1.5},
        {"warmup_epochs": -1},
        {"warmup_epochs": float("inf")},
        {"warmup_epochs": "5"},
    ],
    ids=str,
)
def test_bad_arguments(argument):
    with pytest.raises(InvalidArgumentError, match=f"{next(iter(argument))} must be"):
        LearningRateWarmup(**argument)


def test_bad_models_and_data():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    with pytest.raises(InvalidArgumentError, match="has a|a number. Received: base"):
        fit(line(keras.optimizers.SGD(schedule)), warmup(base_learning_rate=0.1))
    if not KERAS_3:
        with pytest.raises(InvalidArgumentError, match="Received: SGD"):
            fit(line(keras.optimizers.legacy.SGD(0.1)), warmup())
    x = np.ones((40, 1), "float32")
    unknown = tf.data.Dataset.from_tensor_slices((x, x)).filter(lambda x, y: True)
    with pytest.raises(InvalidArgumentError, match="unknown length"):
        line(keras.optimizers.SGD(0.5)).fit(
            unknown.batch(4), epochs=1, verbose=0, callbacks=[warmup()]
        )
