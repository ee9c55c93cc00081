"""The models of the conformance tests: small, and each awkward in its own way."""

from __future__ import annotations

from k80keras._keras import keras, tf

L = keras.layers
CLASSES = 4
FEATURES = 8


def _compile(model, optimizer="adam", **options):
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **options,
    )
    return model


def mlp():
    return _compile(
        keras.Sequential(
            [L.Input((FEATURES,)), L.Dense(16, activation="relu"), L.Dense(CLASSES)]
        )
    )


def sgd_with_schedule():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model = mlp()
    return _compile(model, keras.optimizers.SGD(schedule, momentum=0.9, clipnorm=1.0))


def dropout():
    return _compile(
        keras.Sequential(
            [
                L.Input((FEATURES,)),
                L.Dense(16),
                L.Dropout(0.3),
                L.GaussianNoise(0.1),
                L.Dense(CLASSES),
            ]
        )
    )


def dropout_with_seed():
    return _compile(
        keras.Sequential(
            [
                L.Input((FEATURES,)),
                L.Dense(16),
                L.Dropout(0.3, seed=7),
                L.Dense(16),
                L.Dropout(0.3, seed=7),
                L.Dense(CLASSES),
            ]
        )
    )


def batch_norm_cnn():
    return _compile(
        keras.Sequential(
            [
                L.Input((FEATURES,)),
                L.Reshape((4, 2, 1)),
                L.Conv2D(4, 2, padding="same"),
                L.BatchNormalization(),
                L.ReLU(),
                L.GlobalAveragePooling2D(),
                L.Dense(CLASSES),
            ]
        )
    )


def lstm():
    return _compile(
        keras.Sequential(
            [
                L.Input((FEATURES,)),
                L.Reshape((4, 2)),
                # With recurrent dropout too, plain Keras 2 is no longer repeatable.
                L.LSTM(6, dropout=0.2),
                L.Dense(CLASSES),
            ]
        )
    )


def stateful_rnn():
    inputs = keras.Input(batch_shape=(16, FEATURES))
    hidden = L.GRU(6, stateful=True)(L.Reshape((4, 2))(inputs))
    return _compile(keras.Model(inputs, L.Dense(CLASSES)(hidden)))


class Penalty(keras.layers.Layer):
    """A layer that adds a loss of its own."""

    def call(self, inputs):
        self.add_loss(1e-2 * tf.reduce_mean(tf.square(inputs)))
        return inputs


def added_losses():
    return _compile(
        keras.Sequential(
            [
                L.Input((FEATURES,)),
                L.Dense(16, kernel_regularizer="l2"),
                Penalty(),
                L.Dense(CLASSES),
            ]
        )
    )


def mixed_float16():
    policy = keras.mixed_precision.Policy("mixed_float16")
    return _compile(
        keras.Sequential(
            [
                L.Input((FEATURES,)),
                L.Dense(16, activation="relu", dtype=policy),
                L.Dense(CLASSES, dtype="float32"),
            ]
        ),
        keras.mixed_precision.LossScaleOptimizer(
            keras.optimizers.Adam(), dynamic_growth_steps=3
        ),
    )


class CustomStep(keras.Model):
    """A `train_step` of the user's own, with logs that no metric keeps."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(CLASSES)
        self.average = keras.metrics.Mean(name="mean_loss")

    def call(self, inputs):
        return self.dense(inputs)

    @property
    def metrics(self):
        return [self.average]

    def train_step(self, data):
        x, y = data[:2]
        with tf.GradientTape() as tape:
            logits = self(x, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                tf.cast(y, tf.int32), logits
            )
            loss = tf.reduce_mean(losses)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables))
        self.average.update_state(loss)
        return {"mean_loss": self.average.result(), "last_loss": loss}

    def test_step(self, data):
        x, y = data[:2]
        self.average.update_state(tf.reduce_mean(self(x)))
        return {"mean_loss": self.average.result()}


def custom_train_step():
    model = CustomStep()
    model.compile(optimizer="adam")
    return model


class Deferred(keras.Model):
    """Builds its weights in the first step, and branches like plain Python."""

    def __init__(self):
        super().__init__()
        self.first = L.Dense(16, activation="tanh")
        self.drop = L.Dropout(0.2)
        self.last = L.Dense(CLASSES)

    def call(self, inputs, training=False):
        hidden = self.first(inputs)
        if training:
            hidden = self.drop(hidden, training=True)
        return self.last(hidden)


def deferred_build():
    return _compile(Deferred())


def dict_inputs_two_outputs():
    left, right = keras.Input((FEATURES,), name="left"), keras.Input((2,), name="right")
    hidden = L.Dense(12, activation="relu")(L.Concatenate()([left, right]))
    outputs = {
        "label": L.Dense(CLASSES, name="label")(hidden),
        "value": L.Dense(1, name="value")(hidden),
    }
    model = keras.Model({"left": left, "right": right}, outputs)
    model.compile(
        "rmsprop",
        loss={
            "label": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "value": "mse",
        },
        loss_weights={"label": 1.0, "value": 0.5},
        metrics={"label": ["accuracy"], "value": ["mae"]},
    )
    return model
