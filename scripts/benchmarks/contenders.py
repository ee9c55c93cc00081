"""The ways to train that `benchmark.py fit` sets against each other."""

from __future__ import annotations

import time
from typing import Any, Callable, Sequence

import tensorflow as tf
from tensorflow import keras

from k80keras import K80Tuner


class Stopwatch(keras.callbacks.Callback):
    """Times each epoch from outside, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._started = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts."""
        self._started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stops."""
        self.seconds.append(time.perf_counter() - self._started)


class StopWhen(keras.callbacks.Callback):
    """Ends a training after the first epoch at whose end `is_over()` is true."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        super().__init__()
        self._is_over = is_over

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Asks."""
        if self._is_over():
            self.model.stop_training = True


class KerasFit:
    """`fit` of one compiled model, an epoch at a time.

    Args:
      model: Compiled model.
      dataset: One epoch of batches.
      make_tuner: Function that returns the `K80Tuner` of an epoch, or `None`.
    """

    def __init__(
        self,
        model: Any,
        dataset: Any,
        make_tuner: Callable[[], K80Tuner | None] = lambda: None,
    ) -> None:
        self.model = model
        self.result: Any = None
        self._dataset = dataset
        self._make_tuner = make_tuner

    def epoch_seconds(self) -> float:
        """Trains for an epoch; returns how long it took."""
        return self.train(self._make_tuner())[-1]

    def train(
        self, tuner: K80Tuner | None, epochs: int = 1, others: Sequence[Any] = ()
    ) -> list[float]:
        """Trains for some epochs; returns how long each took."""
        watch = Stopwatch()
        callbacks = [*([tuner] if tuner else []), *others, watch]
        self.model.fit(
            self._dataset, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=False
        )
        if tuner is not None:
            self.result = tuner.result
        return watch.seconds


class BareLoop:
    """Keras' training step in one loop, without `fit`: the limit of fusing.

    Args:
      model: Compiled model.
      dataset: One epoch of batches.
      steps: Int. Their number.
    """

    def __init__(self, model: Any, dataset: Any, steps: int) -> None:
        # Creates the variables of optimizer and metrics, as `fit` does.
        model.fit(dataset.take(1), verbose=0, shuffle=False)
        self._model = model
        self._dataset = dataset

        @tf.function
        def run(iterator: Any) -> None:
            for _ in tf.range(steps):
                model.train_step(next(iterator))

        self._run = run

    def epoch_seconds(self) -> float:
        """Trains for an epoch; returns how long it took."""
        started = time.perf_counter()
        self._model.reset_metrics()
        self._run(iter(self._dataset))
        int(self._model.optimizer.iterations)  # waits for the device
        return time.perf_counter() - started
