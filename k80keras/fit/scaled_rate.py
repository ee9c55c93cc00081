"""A learning rate that is multiplied inside the optimizer's step, and nowhere else."""

from __future__ import annotations

from typing import Any

from k80keras import _keras
from k80keras._keras import tf

_STEPS = ("apply", "apply_gradients")
_MARK = "_k80keras_scaled_rate"


class ScaledRate:
    """Multiplies the rate of an optimizer by a factor that grows from 1 to a peak.

    The factor is part of the training step: it needs no hook at each batch, and
    however many steps run in one call, each has its own. Whoever else looks at
    the optimizer (callbacks, checkpoints, `model.save`) sees what the user made:
    its class is another one only while it steps.

    It belongs to the train function that was traced with it. Let go of, it
    multiplies by 1.

    Args:
      optimizer: `keras.optimizers.Optimizer`.
      strategy: The strategy that the model trains with.
    """

    def __init__(self, optimizer: Any, strategy: Any) -> None:
        self._optimizer = optimizer
        self._depth = 0
        with strategy.scope():
            self._first_step = tf.Variable(0, False, dtype=tf.int64)
            self._warmup_steps = tf.Variable(0, False, dtype=tf.int64)
            self._gain = tf.Variable(0.0, False, dtype=tf.float32)

    @classmethod
    def of(cls, model: Any, optimizer: Any) -> ScaledRate | None:
        """Returns the one that this model's train function was traced with."""
        known = getattr(model.train_function, _MARK, None)
        return known if known and known._optimizer is optimizer else None

    def belongs_to(self, train_function: Any) -> None:
        """Remembers that this function is traced with this factor."""
        setattr(train_function, _MARK, self)

    def set(self, peak: float, first_step: int, warmup_steps: int) -> None:
        """Chooses the factor.

        Args:
          peak: Float, the factor after the warm-up.
          first_step: Int, the count of steps at which the factor is 1.
          warmup_steps: Int. After so many more it is `peak`.
        """
        self._first_step.assign(first_step)
        self._warmup_steps.assign(warmup_steps)
        self._gain.assign(peak - 1.0)

    def factor(self) -> Any:
        """Returns the factor of the next step, a float32 scalar."""
        # Counted as ints: float32 can't tell steps apart beyond 2 ** 24.
        done = tf.cast(_keras.iterations(self._optimizer), tf.int64) - self._first_step
        whole = tf.maximum(tf.convert_to_tensor(self._warmup_steps), 1)
        share = tf.cast(done, tf.float32) / tf.cast(whole, tf.float32)
        is_warm = tf.equal(self._warmup_steps, 0)
        share = tf.where(is_warm, 1.0, tf.clip_by_value(share, 0.0, 1.0))
        return 1.0 + self._gain * share

    def attach(self) -> None:
        """Lets the optimizer step with the scaled rate, until `detach`."""
        optimizer = self._optimizer
        # A `fit` that ended by an error has let nothing go.
        for name in _STEPS:
            former = getattr(vars(optimizer).get(name), _MARK, None)
            if former is not None:
                former.detach()
        own_class = type(optimizer)
        scaled_class = self._scaled(own_class)

        def scaled(step: Any) -> Any:
            def apply(*args: Any, **kwargs: Any) -> Any:
                # Replicas' threads take turns, and one step may call the other.
                self._depth += 1
                object.__setattr__(optimizer, "__class__", scaled_class)
                try:
                    return step(*args, **kwargs)
                finally:
                    self._depth -= 1
                    if not self._depth:
                        object.__setattr__(optimizer, "__class__", own_class)

            setattr(apply, _MARK, self)
            return apply

        for name in _STEPS:
            if hasattr(optimizer, name):
                # Not by `setattr`, which would have Keras track it.
                object.__setattr__(optimizer, name, scaled(getattr(optimizer, name)))

    def detach(self) -> None:
        """Leaves the optimizer as it was; what was traced multiplies by 1."""
        for name in _STEPS:
            if getattr(vars(self._optimizer).get(name), _MARK, None) is self:
                object.__delattr__(self._optimizer, name)
        self._gain.assign(0.0)

    def _scaled(self, own_class: Any) -> Any:
        def learning_rate(optimizer: Any) -> Any:
            rate = tf.convert_to_tensor(own_class.learning_rate.fget(optimizer))
            return rate * tf.cast(self.factor(), rate.dtype)

        members = {
            "__module__": own_class.__module__,
            "__qualname__": own_class.__qualname__,
            "learning_rate": property(learning_rate, own_class.learning_rate.fset),
            **_keras.update_compiled_anew(own_class),
        }
        return type(own_class)(own_class.__name__, (own_class,), members)
