"""Every difference between Keras 2 and Keras 3, and nothing else.

`keras` is what `tensorflow.keras` is, so it follows the user's choice
(`TF_USE_LEGACY_KERAS=1` included). Keras tells callbacks neither how many steps
are left nor who else is listening; the private attributes that do are read
here and nowhere else.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from typing import Any, Callable, Iterator

try:
    import tensorflow as tf
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ImportError(
        "k80keras trains with TensorFlow, and it is not installed. For a Tesla K80: "
        'pip install "k80keras[k80]" (Python 3.9 to 3.11). For anything else: '
        'pip install "k80keras[tensorflow]"'
    ) from error
from tensorflow import keras

KERAS_3: bool = hasattr(keras, "ops")

BATCH_HOOKS = {
    "train": (
        "on_train_batch_begin",
        "on_train_batch_end",
        "on_batch_begin",
        "on_batch_end",
    ),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
}


def versions() -> dict[str, str]:
    """Returns the versions of TensorFlow and Keras by name."""
    package = sys.modules[keras.Model.__module__.split(".")[0]]
    return {"tensorflow": tf.__version__, "keras": package.__version__}


# The running `fit`.


def running_callback_lists() -> Iterator[Any]:
    """Yields the `CallbackList` of each running `fit` or `evaluate`.

    It is nowhere else to be had: both keep it in a local variable. The innermost
    comes first; it is `None` where a single batch is trained or evaluated.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("train_on_batch", "test_on_batch"):
            yield None
        elif "callbacks" in frame.f_code.co_varnames:
            callbacks = frame.f_locals.get("callbacks")
            if isinstance(callbacks, keras.callbacks.CallbackList):
                yield callbacks
        frame = frame.f_back


def fit_arguments(model: Any) -> Any:
    """Returns the arguments that the running `fit` of `model` was given.

    Returns:
      Mapping; `None` if another method called last, such as `evaluate`.
    """
    frame: Any = sys._getframe(1)
    names = ("fit", "evaluate", "predict")
    while frame is not None:
        if frame.f_code.co_name in names and frame.f_locals.get("self") is model:
            if "callbacks" in frame.f_code.co_varnames:
                return frame.f_locals if frame.f_code.co_name == "fit" else None
        frame = frame.f_back
    return None


def move_to_front(callback_list: Any, callback: Any) -> None:
    """Lets `callback` see each event first, from the next event on."""
    others = [c for c in callback_list.callbacks if c is not callback]
    # A new list: the old one is being iterated over right now.
    callback_list.callbacks = [callback, *others]


def resumed_step(model: Any, steps: int | None, epoch: int) -> int:
    """Returns the step at which Keras 2 takes up an interrupted epoch."""
    if getattr(model, "_training_state", None) is None:
        return 0
    return int(model._maybe_load_initial_counters_from_ckpt(steps, epoch)[1])


def evaluation_steps(model: Any) -> int | None:
    """Returns the steps of the evaluation that `fit` is about to run.

    Returns:
      Int; `None` if Keras will run until the data ends.

    Raises:
      AttributeError: If no `fit` prepared this evaluation.
    """
    if KERAS_3:
        steps = model._eval_epoch_iterator.num_batches
    else:
        steps = model._eval_data_handler.inferred_steps
    return None if steps is None else int(steps)


def stops_evaluating(model: Any) -> bool:
    """Returns whether a callback asked Keras 3 to stop after the next step."""
    return bool(getattr(model, "stop_evaluating", False))


# What the user asked of `compile`.


def chosen_steps_per_execution(model: Any) -> int | str | None:
    """Returns what the user set in `compile`, `None` for nothing.

    Keras 3 cannot tell its default of 1 from an explicit 1.
    """
    if KERAS_3:
        steps = model.steps_per_execution
        return None if steps == 1 else int(steps)
    chosen = _compile_argument(model, "steps_per_execution")
    if chosen is None and steps_per_execution(model) != 1:
        return steps_per_execution(model)
    return chosen  # type: ignore[no-any-return]


def steps_per_execution(model: Any) -> int:
    """Returns how many steps Keras runs in the next call."""
    steps = model.steps_per_execution if KERAS_3 else model._steps_per_execution.numpy()
    return int(steps)


def chosen_jit_compile(model: Any) -> bool | None:
    """Returns what the user set in `compile`, `None` for Keras' default.

    Keras 3 cannot tell a value from its default that comes to the same.
    """
    if KERAS_3:
        by_default = model._resolve_auto_jit_compile()
        return None if model.jit_compile == by_default else bool(model.jit_compile)
    # Keras 2 has a setter, too.
    chosen = _compile_argument(model, "jit_compile") or model.jit_compile
    return None if chosen is None else bool(chosen)


def _compile_argument(model: Any, name: str) -> Any:
    config = getattr(model, "_compile_config", None)
    return getattr(config, "config", {}).get(name)


def optimizers_compiled_by_xla(model: Any) -> list[Any]:
    """Returns the optimizers whose update Keras 2 compiles by default."""
    if KERAS_3:
        return []
    found = []
    for optimizer in tf.nest.flatten(model.optimizer):
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        if getattr(optimizer, "jit_compile", False):
            found.append(optimizer)
    return found


# The learning rate.


def stepping_optimizer(model: Any) -> Any:
    """Returns the optimizer whose learning rate counts, `None` if there is none."""
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a loss scale
    return optimizer if isinstance(optimizer, keras.optimizers.Optimizer) else None


def iterations(optimizer: Any) -> Any:
    """Returns the variable that counts batches.

    What Keras 3 shows counts updates: fewer, when it accumulates gradients.
    """
    return optimizer._iterations


def rate_variable(optimizer: Any) -> Any:
    """Returns the variable that holds the rate; `None` if it is a schedule."""
    rate = optimizer._learning_rate
    return rate if hasattr(rate, "assign") else None


def learning_rate_now(optimizer: Any) -> float:
    """Returns the rate of the next step."""
    rate = optimizer.learning_rate
    if not KERAS_3 and rate_variable(optimizer) is None:
        # Keras 2 shows the rate of the last step.
        rate = optimizer._learning_rate(optimizer.iterations)
    return float(tf.convert_to_tensor(rate))  # which a mirrored variable needs


def update_compiled_anew(optimizer_class: type) -> dict[str, Any]:
    """Returns members for a subclass that must not share Keras 2's traces."""
    compiled = getattr(optimizer_class, "_update_step_xla", None)
    if compiled is None:
        return {}
    update = tf.function(compiled.python_function, jit_compile=True)
    return {"_update_step_xla": update}


# The training step.


def why_not_fusable(model: Any) -> str | None:
    """Returns why Keras' own train function must run as it is, else `None`."""
    if not isinstance(model, keras.Model):
        return "the model is not a tensorflow.keras model"
    if KERAS_3 and keras.backend.backend() != "tensorflow":
        return f"Keras runs on the {keras.backend.backend()} backend"
    if model.run_eagerly or tf.config.functions_run_eagerly():
        return "the model runs eagerly"
    for name in ("make_train_function", "make_test_function"):
        home = next(c for c in type(model).__mro__ if name in vars(c))
        if not is_keras_own(home):
            return f"{home.__name__} overrides {name}"
        made = getattr(model, name[len("make_") :], None)
        if made and not is_keras_own(getattr(made, "python_function", made)):
            return f"{name[len('make_'):]} is not what Keras made"
    strategy = model.distribute_strategy
    known = (tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy)
    several_machines = getattr(strategy.extended, "_in_multi_worker_mode", bool)()
    is_default = type(strategy).__name__ == "_DefaultDistributionStrategy"
    if several_machines or not (is_default or isinstance(strategy, known)):
        return f"{type(strategy).__name__} schedules the steps itself"
    return None


def is_keras_own(definition: Any) -> bool:
    """Returns whether Keras itself defines this class or function."""
    module = getattr(definition, "__module__", None) or ""
    return module.split(".")[0] in ("keras", "tf_keras")


def step_of(train_function: Any) -> Callable[[Any], Any]:
    """Returns Keras' own step as a `tf.function` of one batch.

    It is traced once for each kind of batch, as by plain `fit`: Keras 2 layers
    with a seed draw another one at every trace.

    Args:
      train_function: What `make_train_function` (or `make_test_function`)
        made, with one step per execution.
    """
    if KERAS_3:
        # Keras 3 takes any iterable of batches; `train_on_batch` relies on it.
        @tf.autograph.experimental.do_not_convert
        def step(data: Any) -> Any:
            return train_function([data])

    else:
        # Keras 2 calls `next` on what it is given.
        from_iterator = train_function.python_function

        def step(data: Any) -> Any:
            return from_iterator(iter([data]))

    return tf.function(step, reduce_retracing=True)  # type: ignore[no-any-return]


@contextlib.contextmanager
def seeds_kept_on_error(model: Any) -> Iterator[None]:
    """Lets a trace that fails draw no seed of Keras 2's layers."""
    layers = () if KERAS_3 else model._flatten_layers()
    found = [getattr(layer, "_random_generator", None) for layer in layers]
    seeds = [(generator, generator._seed) for generator in found if generator]
    try:
        yield
    except Exception:
        for generator, seed in seeds:
            generator._seed = seed
        raise


def was_traced(train_function: Any) -> bool:
    """Returns whether plain Keras has already trained with this function."""
    if KERAS_3:
        nonlocals = inspect.getclosurevars(train_function).nonlocals
        train_function = nonlocals.get("multi_step_on_iterator")
    count = getattr(train_function, "experimental_get_tracing_count", int)
    return int(count()) > 0


def show_step_to_tensorboard(model: Any, step: Any) -> Any:
    """Lets Keras 2's TensorBoard draw `step`; returns what it drew before."""
    if KERAS_3:
        return None
    before = model.train_tf_function
    model.train_tf_function = step
    return before


# Callbacks.


def hook_home(callback: Any, hook: str) -> type | None:
    """Returns the class that overrides `hook`; `None` if nobody does.

    A hook set on the instance (as `LambdaCallback` does) belongs to no class
    of Keras' own: `type(callback)` must not speak for it, so `object` is given.
    """
    if hook in vars(callback):
        return object
    for cls in type(callback).__mro__:
        if cls is keras.callbacks.Callback:
            return None
        if hook in vars(cls):
            return cls
    return object


def batches_since_save(callback: Any) -> int:
    """Returns the count that an integer `save_freq` compares with."""
    for name in ("_batches_seen_since_last_saving", "_batches_count"):
        if hasattr(callback, name):
            return int(getattr(callback, name))
    raise AttributeError(f"{type(callback).__name__} counts no batches")
