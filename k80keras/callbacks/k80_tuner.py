"""`K80Tuner`: live tuning of an unmodified `fit`."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from k80keras import _keras
from k80keras._keras import keras
from k80keras.errors import InvalidArgumentError
from k80keras.files import write_text
from k80keras.fit.result import TuningResult
from k80keras.fit.session import FitSession, Options


class K80Tuner(keras.callbacks.Callback):
    """Finds the fastest way to run the training step while `fit` trains.

    Keras calls into TensorFlow once a step. This callback lets it run several
    steps in one call, measures how many pay off, tries XLA where that may be
    worth it, and keeps what measured faster. The weights after training are bit
    for bit those of plain `fit`, unless XLA is chosen; Keras' counting of steps,
    its hooks and its files stay as they are. It also adds `steps_per_second`
    and `input_wait_fraction` to the logs of each epoch.

    Args:
      steps_per_execution: Int, `"auto"`, or `None`. How many training steps to
        run in one call into TensorFlow. `"auto"` measures; an int is used as it
        is; `None` or `False` leaves the training loop alone. What the user set
        in `compile`, and callbacks that look at each batch, go first. Defaults
        to `"auto"`.
      jit_compile: Bool, `"auto"`, or `None`. `"auto"` tries XLA if the training
        is long enough to repay it, `True` uses it, `False` or `None` leaves it.
        XLA never runs on a GPU of compute capability below 5.0, nor with more
        than one replica. Defaults to `"auto"`.
      trial_fraction: Float from 0 to below 1. The share of the training's time
        that trials may cost. 0 allows none. Defaults to 0.03.
      cache_dir: String or path, or `None`. Folder that remembers decisions for
        the same model structure, batch shape, device, versions and compile
        options. Defaults to `None`: each compiled model remembers its own.
      report_path: String or path, or `None`. Where to write the result as JSON
        when training ends. Its folder must exist. Defaults to `None`.
      verbose: 0 or 1. 1 says in one line what is decided, pinned or off, and
        why. Defaults to 1.

    Attributes:
      result: `TuningResult` of the last `fit`, `None` before its end.

    Raises:
      InvalidArgumentError: If an argument breaks one of the rules above.

    Example:

    ```python
    tuner = K80Tuner()
    model.fit(dataset, epochs=5, callbacks=[tuner])
    print(tuner.result)
    ```
    """

    # Keras 2: logs may stay tensors for all this callback cares.
    _supports_tf_logs = True

    def __init__(
        self,
        steps_per_execution: int | str | None = "auto",
        jit_compile: bool | str | None = "auto",
        trial_fraction: float = 0.03,
        cache_dir: str | os.PathLike[str] | None = None,
        report_path: str | os.PathLike[str] | None = None,
        verbose: int = 1,
    ) -> None:
        super().__init__()
        _check(steps_per_execution, jit_compile, trial_fraction)
        self.result: TuningResult | None = None
        self._options = Options(
            steps_per_execution,
            jit_compile,
            float(trial_fraction),
            None if cache_dir is None else os.path.expanduser(os.fspath(cache_dir)),
        )
        self._report_path = None if report_path is None else os.fspath(report_path)
        if self._report_path is not None:
            folder = os.path.dirname(os.path.abspath(self._report_path))
            if not os.path.isdir(folder) or os.path.isdir(self._report_path):
                raise InvalidArgumentError(
                    "`report_path` must be a file in a folder that exists. "
                    f"Received: report_path={self._report_path!r}. "
                    f"Create the folder {folder!r}, or name another file"
                )
        self._verbose = verbose
        self._lines: list[str] = []
        self._failure: str | None = None
        self._added: tuple[str, ...] = ()
        self._session: FitSession | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Swaps the training function."""
        self.result, self._session = None, None
        self._lines, self._failure, self._added = [], None, ()
        running = [found for found in _keras.running_callback_lists() if found]
        if not running:
            self._say("the tuner is off: no Keras `fit` is running")
            self._flush()
            return
        callback_list = running[0]
        callbacks = [c for found in reversed(running) for c in found.callbacks]
        tuners = [c for c in callbacks if isinstance(c, K80Tuner)]
        # This `fit` may itself run in a callback of another of the same model.
        if next(c for c in tuners if c.model is self.model) is not self:
            self.result = TuningResult("off", "another K80Tuner is at work")
            self._say("the tuner is off: another K80Tuner is at work")
            self._flush()
            return
        try:
            _keras.move_to_front(callback_list, self)
            self._session = FitSession(
                self.model,
                callback_list,
                self.params,
                self._options,
                self._say,
                self._fail,
            )
        except Exception as error:  # pylint: disable=broad-except
            self._fail(error)
        self._flush()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Arms the training function."""
        self._flush()
        self._guarded("begin_epoch", epoch)

    def on_test_begin(self, logs: Any = None) -> None:
        """Arms the evaluation function."""
        self._guarded("begin_evaluation")

    def on_test_end(self, logs: Any = None) -> None:
        """Disarms the evaluation function."""
        self._guarded("end_evaluation")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the tuner's logs."""
        added = self._guarded("end_epoch")
        if added is None:  # whoever wrote a column for these goes on to need them
            added = dict.fromkeys(self._added, float("nan"))
        self._added = tuple(added)
        if logs is not None:
            for name, value in added.items():
                logs.setdefault(name, value)  # a metric of that name goes first

    def on_train_end(self, logs: Any = None) -> None:
        """Puts Keras' functions back and reports."""
        session, self._session = self._session, None
        if session is not None:
            try:
                self.result = session.close()
            except Exception as error:  # pylint: disable=broad-except
                self._fail(error)
        if self._failure is not None:
            so_far = self.result or TuningResult("off", self._failure)
            self.result = dataclasses.replace(
                so_far, status="off", reason=self._failure
            )
        if self.result is not None and self._report_path is not None:
            try:
                write_text(self._report_path, self.result.to_json())
            except OSError as error:
                self._say(f"could not write {self._report_path!r}: {error}")
        self._flush()

    def _guarded(self, event: str, *args: Any) -> Any:
        """Passes an event on; a failure of the tuner's own ends only the tuner."""
        if self._session is None:
            return None
        try:
            return getattr(self._session, event)(*args)
        except Exception as error:  # pylint: disable=broad-except
            self._fail(error)
            self._session.abandon()
            return None

    def _fail(self, error: Exception) -> None:
        """Reports the first failure of the tuner's own, and only that one."""
        if self._failure is None:
            told = (str(error).strip() or "no message").splitlines()[0]
            self._failure = f"the tuner failed ({type(error).__name__}: {told})"
            self._say(f"{self._failure}; training goes on without it")

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _flush(self) -> None:
        """Prints between epochs, where no progress bar is in the way."""
        lines, self._lines = self._lines, []
        if self._verbose:
            for line in lines:
                print(f"K80Tuner: {line}", flush=True)


def _check(steps: Any, jit_compile: Any, trial_fraction: Any) -> None:
    whole = isinstance(steps, int) and not isinstance(steps, bool)
    named = steps is None or steps is False or steps == "auto"
    if not (named or (whole and 1 <= steps <= 1024)):
        raise InvalidArgumentError(
            "`steps_per_execution` must be an int from 1 to 1024, 'auto' or None. "
            f"Received: steps_per_execution={steps!r}. Use 'auto' to measure it"
        )
    if not (jit_compile is None or jit_compile == "auto" or type(jit_compile) is bool):
        raise InvalidArgumentError(
            "`jit_compile` must be True, False, 'auto' or None. "
            f"Received: jit_compile={jit_compile!r}. Use 'auto' to measure it"
        )
    number = isinstance(trial_fraction, (int, float))
    if not (number and 0 <= trial_fraction < 1):
        raise InvalidArgumentError(
            "`trial_fraction` must be a number from 0 to below 1. "
            f"Received: trial_fraction={trial_fraction!r}. 0.03 means three percent"
        )
