"""One `fit` with the tuner: what is swapped in, watched, and put back."""

from __future__ import annotations

import dataclasses
import time
import weakref
from typing import Any, Callable

from k80keras import _keras
from k80keras._keras import keras, tf
from k80keras.fit import xla
from k80keras.fit.batch_hooks import save_points, who_needs_every_batch
from k80keras.fit.devices import device_names
from k80keras.fit.fused import FusedFunction, fuse, fused_with
from k80keras.fit.observer import Observer
from k80keras.fit.policy import Plan, TuningPolicy
from k80keras.fit.result import TuningResult
from k80keras.fit.stepper import Execution, Policy, Stepper


@dataclasses.dataclass(frozen=True)
class Options:
    """The arguments of `K80Tuner`, checked."""

    steps_per_execution: str | int | None
    jit_compile: str | bool | None
    trial_fraction: float
    cache_dir: str | None


class EvaluationPolicy:
    """Doubles the steps per execution while an execution stays short.

    Args:
      limit: Int. The most steps.
      should_stop: Function that returns whether Keras will stop after the next
        step, as `stop_evaluating` set before the first step does.
    """

    def __init__(self, limit: int, should_stop: Callable[[], bool]) -> None:
        self._limit = limit
        self._should_stop = should_stop
        self._steps = 1

    def accepts(self, stepper: Stepper) -> bool:
        """Returns whether evaluation can start in the fused function."""
        return stepper.fused.goes_on(stepper.iterator)

    def next_steps(self, stepper: Stepper) -> int:
        """Returns how many steps to run next."""
        return 1 if self._should_stop() else self._steps

    def record(self, execution: Execution) -> None:
        """Learns from an execution."""
        if execution.seconds < 0.25 and not execution.first:
            self._steps = min(self._limit, 2 * self._steps)

    def give_up(self, error: Exception) -> None:
        """Evaluation goes on one step at a time."""


class FitSession:
    """Swaps the functions of a model for one `fit`.

    Args:
      model: The model that is being trained.
      callback_list: Keras' list of the callbacks of this `fit`.
      params: Keras' parameters of this `fit`: `steps` and `epochs`.
      options: Arguments of the tuner.
      say: Function that takes one line for the user.
      fail: Function that takes an exception of the tuner's own.
      clock: Function that returns seconds.
    """

    def __init__(
        self,
        model: Any,
        callback_list: Any,
        params: dict[str, Any],
        options: Options,
        say: Callable[[str], None],
        fail: Callable[[Exception], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.notes: list[str] = []
        self._model = model
        self._params = params
        self._options = options
        self._clock = clock
        self._say = say
        self._fail = fail
        self._policy: TuningPolicy | None = None
        self._train: Stepper | Observer | None = None
        self._test: Stepper | None = None
        self._status, self._reason = "off", ""
        self._restore: Any = None
        reference = weakref.ref(callback_list)
        self._is_asked = lambda: next(_keras.running_callback_lists()) is reference()
        self._seconds = 0.0
        self._steps = 0
        self._epoch_started = 0.0
        self._epoch_ended: float | None = None
        self._epoch_mark = (0, 0.0, 0.0)
        self._install(callback_list)

    # Keras' events.

    def begin_epoch(self, epoch: int) -> None:
        """Arms for the steps of an epoch."""
        steps = self._params.get("steps")
        if self._train is not None:
            resumed = _keras.resumed_step(self._model, steps, epoch)
            self._train.begin(steps - resumed if steps else steps)
        self._epoch_ended = None
        self._epoch_mark = self._counters()
        self._epoch_started = self._clock()

    def end_steps(self) -> None:
        """Marks the end of an epoch's training steps, if nothing else did."""
        if self._epoch_ended is None:
            self._epoch_ended = self._clock()
            if self._train is not None:
                self._train.end()

    def begin_evaluation(self) -> None:
        """Arms for the evaluation that `fit` is about to run."""
        self.end_steps()
        if self._test is not None:
            try:
                self._test.begin(_keras.evaluation_steps(self._model))
            except AttributeError:
                self._test.end()

    def end_evaluation(self) -> None:
        """Disarms after an evaluation."""
        if self._test is not None:
            self._test.end()

    def end_epoch(self) -> dict[str, float]:
        """Returns what to add to the epoch's logs."""
        self.end_steps()
        assert self._epoch_ended is not None
        seconds = self._epoch_ended - self._epoch_started
        steps, waited, observed = (
            now - then for now, then in zip(self._counters(), self._epoch_mark)
        )
        if self._train is None:
            steps = self._params.get("steps") or 0
        self._seconds += seconds
        self._steps += int(steps)
        logs = {}
        if steps and seconds > 0:
            logs["steps_per_second"] = steps / seconds
        if self._train is not None:
            if not observed:  # no sample in this epoch: the latest known
                _, waited, observed = self._counters()
            logs["input_wait_fraction"] = waited / observed if observed else 0.0
        return logs

    def close(self) -> TuningResult:
        """Puts everything back; returns what was found."""
        self._restore()
        policy = self._policy
        _, waited, observed = self._counters()
        result = TuningResult(
            status=self._status,
            reason=self._reason,
            steps=self._steps,
            steps_per_second=self._steps / self._seconds if self._seconds else None,
            input_wait_fraction=waited / observed if observed else None,
            notes=tuple(self.notes),
            environment={"device": ", ".join(device_names()), **_keras.versions()},
        )
        if policy is None:
            observed_steps = getattr(self._train, "steps_per_call", int)()
            return dataclasses.replace(
                result,
                steps_per_execution=max(1, observed_steps),
                jit_compile=bool(getattr(self._model, "jit_compile", False)),
            )
        return dataclasses.replace(
            result,
            status=policy.status,
            reason=policy.reason,
            steps_per_execution=policy.steps,
            jit_compile=policy.jit_compile or bool(self._model.jit_compile),
            candidates=policy.candidates,
            seconds_saved=policy.seconds_saved,
            seconds_spent=policy.seconds_spent,
            retunings=policy.retunings,
        )

    def abandon(self) -> None:
        """Lets training go on, a step at a time, after a failure of the tuner's own.

        What was swapped in stays until `close`: its kernels hold the state of
        the random layers.
        """
        for swapped in (self._train, self._test):
            if swapped is not None:
                swapped.end()

    # Installation.

    def _install(self, callback_list: Any) -> None:
        model, options = self._model, self._options
        self._restore = weakref.finalize(callback_list, lambda: None)
        put_back(model)  # an earlier `fit` may have died without its end
        why_not = _keras.why_not_fusable(model)
        if why_not is not None:
            self._note("off", f"the tuner is off: {why_not}")
            return
        told = xla.tame_optimizers(model)
        if told:
            self._tell(told)
        callbacks = [*callback_list.callbacks]
        if type(callback_list) is not keras.callbacks.CallbackList:
            callbacks.append(callback_list)  # a kind of its own may have hooks
        self._train = self._training(model, callbacks, options)
        model.train_function = self._train
        needy = who_needs_every_batch(callbacks, "test")
        unmade = None
        if isinstance(self._train, Stepper) and needy is None:
            was_made = model.test_function is not None
            model.make_test_function()
            evaluation = EvaluationPolicy(64, lambda: _keras.stops_evaluating(model))
            self._test = self._stepper(model.test_function, evaluation)
            model.test_function = self._test
            unmade = None if was_made else self._test.fused
        shown = None
        if isinstance(self._train, Stepper):
            shown = _keras.show_step_to_tensorboard(model, self._train.fused.step)
        # `fit` tells nobody when it dies, but its list of callbacks dies too.
        self._restore = weakref.finalize(
            callback_list, _restore, weakref.ref(model), shown, self._policy, unmade
        )
        for stepper in (self._train, self._test):
            if isinstance(stepper, Stepper):
                stepper.release = self._restore

    def _training(
        self, model: Any, callbacks: list[Any], options: Options
    ) -> Stepper | Observer:
        plain = model.train_function
        drain = _drain if tf.config.get_visible_devices("GPU") else None
        chosen = _keras.chosen_steps_per_execution(model)
        if chosen is not None:
            self._note("pinned", f"compile(steps_per_execution={chosen!r}) is kept")
            steps = _keras.steps_per_execution(model)
            per_call = lambda: steps  # noqa: E731
            if chosen == "auto":  # Keras 2.14 changes it while it trains
                per_call = lambda: _keras.steps_per_execution(model)  # noqa: E731
            return Observer(plain, per_call, self._clock, drain, self._is_asked)
        needy = who_needs_every_batch(callbacks, "train")
        fixed = options.steps_per_execution
        if needy is not None:
            self._note("pinned", f"{needy} looks at every batch: one step at a time")
            fixed = 1
        elif fixed in (None, False):
            self._note("off", f"steps_per_execution={fixed} leaves training alone")
            fixed = 1
        kept = fused_with(plain)
        if fixed == 1 and options.jit_compile is not True and kept is None:
            return Observer(
                plain, clock=self._clock, drain=drain, is_asked=self._is_asked
            )
        jit = options.jit_compile
        chosen_jit = _keras.chosen_jit_compile(model)
        no_xla = xla.why_not_compile(model)
        if chosen_jit is not None or model.jit_compile:
            if chosen_jit and no_xla:
                self._tell(f"compile(jit_compile=True) is kept, but {no_xla}")
            jit = False
        epochs, epoch_steps = self._params.get("epochs"), self._params.get("steps")
        plan = Plan(
            fixed_steps=fixed if isinstance(fixed, int) else None,
            jit_compile=jit if jit == "auto" else bool(jit),
            no_xla=no_xla,
            epoch_steps=epoch_steps,
            total_steps=epochs * epoch_steps if epochs and epoch_steps else None,
            trial_fraction=options.trial_fraction,
            save_points=tuple(save_points(callbacks)),
            cache_dir=options.cache_dir,
            key_options={
                "jit_compile": [jit, bool(model.jit_compile)],
                "num_replicas": model.distribute_strategy.num_replicas_in_sync,
            },
        )
        self._policy = TuningPolicy(
            plan,
            lambda: bool(model.stop_training),
            self._say,
            self._fail,
            self._clock,
            drain,
        )
        return self._stepper(plain, self._policy, drain)

    def _stepper(self, plain: Any, policy: Policy, drain: Any = None) -> Stepper:
        model = weakref.ref(self._model)
        return Stepper(
            plain,
            fuse(plain),
            policy,
            self._clock,
            drain,
            self._is_asked,
            lambda: _keras.seeds_kept_on_error(model()),
        )

    # Words and numbers.

    def _note(self, status: str, reason: str) -> None:
        self._status, self._reason = status, reason
        self._say(reason)

    def _tell(self, line: str) -> None:
        self.notes.append(line)
        self._say(line)

    def _counters(self) -> tuple[int, float, float]:
        train = self._train
        if train is None:
            return 0, 0.0, 0.0
        source: Any = train if isinstance(train, Observer) else self._policy
        return train.steps_done, source.wait_seconds, source.observed_seconds


def put_back(model: Any) -> None:
    """Gives a model its own functions again, however many times wrapped."""
    for name in ("train_function", "test_function"):
        function = getattr(model, name, None)
        while isinstance(function, (Stepper, Observer)):
            function.end()
            function = function.plain
            setattr(model, name, function)


def _restore(
    model_reference: Any,
    shown: Any,
    policy: TuningPolicy | None,
    unmade: FusedFunction | None,
) -> None:
    if policy is not None:
        policy.close()
    model = model_reference()
    if model is not None:
        put_back(model)
        if unmade is not None and not unmade.was_used():
            model.test_function = None  # as if it had not been made for us
        if shown is not None:
            _keras.show_step_to_tensorboard(model, shown)


def _drain(logs: Any) -> None:
    for value in tf.nest.flatten(logs):
        if isinstance(value, tf.Tensor):
            value.numpy()
            return
