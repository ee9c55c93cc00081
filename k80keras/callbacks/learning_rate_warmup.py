"""`LearningRateWarmup`: the rate that a batch of several replicas needs."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any

from k80keras import _keras
from k80keras._keras import keras
from k80keras.data.structure import batches_in_one_pass
from k80keras.errors import InvalidArgumentError
from k80keras.fit.scaled_rate import ScaledRate

# From so many passes through the data an epoch is taken for a mistake.
_PASSES = 1.5


class LearningRateWarmup(keras.callbacks.Callback):
    """Scales the learning rate with the replicas, after a gradual warm-up.

    A batch that is k times as large needs a rate that is k times as high, and a
    start from the rate of one replica, from which it rises step by step (Goyal et
    al. 2017, "Accurate, Large Minibatch SGD", https://arxiv.org/abs/1706.02677,
    sections 2.1 and 2.2). It is a rule for SGD on image models; with adaptive
    optimizers, or far more replicas than one machine holds, check it.

    What is scaled is the user's own rate, whatever sets it: a number, a schedule,
    `LearningRateScheduler`, `ReduceLROnPlateau`. They see, and files keep, the
    rate before scaling; the logs of each epoch gain `scaled_learning_rate`, which
    the next step would use. The optimizer is as it was when `fit` ends. Only if
    `fit` ends by an error the scaled rate stays, until the next `fit` with this
    callback or the next `compile`.

    The factor is computed in the step itself: `K80Tuner` goes on running several
    steps in one call, and a training that `BackupAndRestore` resumes goes on
    where it was.

    Args:
      base_learning_rate: Float. The rate for one replica. Defaults to `None`: what
        the optimizer has.
      num_replicas: Int. How many times as large the batch is. Defaults to `None`:
        the replicas of the model's strategy.
      warmup_epochs: Float, not negative. 0 scales at once. Defaults to 5, as in
        the paper.
      verbose: 0 or 1. 1 prints the old rate and the new one when training begins.
        Defaults to 1.

    Raises:
      InvalidArgumentError: If an argument breaks one of the rules above; by `fit`,
        if the optimizer is none of `keras.optimizers.Optimizer`, has a schedule
        and is to get a `base_learning_rate`, or nobody knows how many steps an
        epoch has.

    Example:

    ```python
    strategy = k80keras.mirrored_strategy()
    with strategy.scope():
        model = build_model()
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    model.fit(dataset, epochs=90, callbacks=[LearningRateWarmup()])
    ```
    """

    # Keras 2: logs may stay tensors for all this callback cares.
    _supports_tf_logs = True

    def __init__(
        self,
        base_learning_rate: float | None = None,
        num_replicas: int | None = None,
        warmup_epochs: float = 5,
        verbose: int = 1,
    ) -> None:
        super().__init__()
        _check(base_learning_rate, num_replicas, warmup_epochs)
        self._base_learning_rate = base_learning_rate
        self._num_replicas = num_replicas
        self._warmup_epochs = warmup_epochs
        self._verbose = verbose
        self._rate: ScaledRate | None = None
        self._optimizer: Any = None
        self._peak = 1
        self._is_set = False

    def set_model(self, model: Any) -> None:
        """Prepares the optimizer, before Keras makes the train function."""
        super().set_model(model)
        arguments = _keras.fit_arguments(model)
        if arguments is None:
            return  # an evaluation
        self._optimizer = _stepping_optimizer(model)
        replicas = model.distribute_strategy.num_replicas_in_sync
        self._peak = int(self._num_replicas or replicas)
        if self._base_learning_rate is not None:
            self._set_base(self._base_learning_rate)
        self._rate, self._is_set = None, False
        if self._peak == 1:
            return
        self._rate = ScaledRate.of(model, self._optimizer)
        if self._rate is None:
            # What was traced before knows no factor.
            model.train_function = None
            self._rate = ScaledRate(self._optimizer, model.distribute_strategy)
        self._rate.attach()
        self._warn_of_many_passes(arguments)

    def on_train_begin(self, logs: Any = None) -> None:
        """Remembers the train function, whose trace holds the factor."""
        if self._rate is not None:
            self._rate.belongs_to(self.model.train_function)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the warm-up, at the first epoch of this `fit`."""
        if self._is_set:
            return
        self._is_set = True
        warmup_steps = first_step = 0
        if self._rate is not None and self._warmup_epochs:
            steps = self.params.get("steps")
            if steps is None:
                raise InvalidArgumentError(
                    "LearningRateWarmup: a warm-up needs to know how many steps an "
                    "epoch has. Received: data of unknown length. Give fit() "
                    "steps_per_epoch, or the data set a length by "
                    "apply(tf.data.experimental.assert_cardinality(n))"
                )
            warmup_steps = round(self._warmup_epochs * steps)
            done = epoch * steps + _keras.resumed_step(self.model, steps, epoch)
            first_step = int(_keras.iterations(self._optimizer).numpy()) - done
        if self._rate is not None:
            self._rate.set(self._peak, first_step, warmup_steps)
        if self._verbose:
            self._tell(warmup_steps)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the scaled rate to the logs."""
        if logs is not None:
            factor = 1.0 if self._rate is None else float(self._rate.factor())
            now = _keras.learning_rate_now(self._optimizer) * factor
            logs.setdefault("scaled_learning_rate", now)

    def on_train_end(self, logs: Any = None) -> None:
        """Leaves the optimizer as it was."""
        if self._rate is not None:
            self._rate.detach()

    def _set_base(self, rate: float) -> None:
        if _keras.rate_variable(self._optimizer) is None:
            raise InvalidArgumentError(
                "LearningRateWarmup: base_learning_rate is for an optimizer whose "
                f"rate is a number. Received: base_learning_rate={rate!r} and a "
                "schedule, which is scaled as it is. Leave base_learning_rate out"
            )
        self._optimizer.learning_rate = rate

    def _tell(self, warmup_steps: int) -> None:
        old = _keras.learning_rate_now(self._optimizer)
        when = "at once"
        if warmup_steps:
            when = f"over {self._warmup_epochs:g} epochs ({warmup_steps} steps)"
        told = f"{old:g} -> {old * self._peak:g} {when}, for {self._peak} replicas"
        if self._peak == 1:
            told = f"{old:g} stays, for 1 replica"
        print(f"LearningRateWarmup: learning rate {told}", flush=True)

    def _warn_of_many_passes(self, arguments: Any) -> None:
        steps = arguments.get("steps_per_epoch")
        batches = batches_in_one_pass(arguments.get("x")) if steps else None
        if batches and steps >= _PASSES * batches:
            warnings.warn(
                f"k80keras: steps_per_epoch={steps} goes {steps / batches:.3g} times "
                f"through the data, which is {batches:.6g} batches. Did it stay when "
                "the batch grew? Divide it by the number of replicas",
                UserWarning,
                stacklevel=2,
            )


def _stepping_optimizer(model: Any) -> Any:
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise InvalidArgumentError(
            "LearningRateWarmup: the rate is scaled in TensorFlow's step. Received: "
            f"Keras on the {backend} backend. Set KERAS_BACKEND=tensorflow"
        )
    optimizer = _keras.stepping_optimizer(model)
    if optimizer is None:
        raise InvalidArgumentError(
            "LearningRateWarmup: the model must have an optimizer of the kind "
            "keras.optimizers.Optimizer. Received: "
            f"{type(getattr(model, 'optimizer', None)).__name__}. Replace "
            "keras.optimizers.legacy.NAME by keras.optimizers.NAME"
        )
    return optimizer


def _check(base_learning_rate: Any, num_replicas: Any, warmup_epochs: Any) -> None:
    if base_learning_rate is not None and not _is_number(base_learning_rate, above=0):
        raise InvalidArgumentError(
            "LearningRateWarmup: base_learning_rate must be a number above 0. "
            f"Received: {base_learning_rate!r}. Leave it out for the optimizer's own"
        )
    whole = isinstance(num_replicas, Integral) and not isinstance(num_replicas, bool)
    if num_replicas is not None and not (whole and num_replicas >= 1):
        raise InvalidArgumentError(
            "LearningRateWarmup: num_replicas must be an int of 1 or more. Received: "
            f"{num_replicas!r}. Leave it out for the replicas of the strategy"
        )
    if warmup_epochs != 0 and not _is_number(warmup_epochs, above=0):
        raise InvalidArgumentError(
            "LearningRateWarmup: warmup_epochs must be a number of 0 or more. "
            f"Received: {warmup_epochs!r}. Leave it out for 5"
        )


def _is_number(value: Any, above: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return math.isfinite(value) and value > above
