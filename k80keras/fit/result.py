"""What the tuner found, as frozen values: printed, saved and drawn as they are."""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to run the training step, and how long it took.

    Attributes:
      steps_per_execution: Int. Training steps in one call into TensorFlow.
      jit_compile: Bool. Whether XLA compiled the step.
      seconds_per_step: Float. Median time of one step.
      spread_seconds: Float. Robust standard deviation of one step's time
        (1.4826 times the median absolute deviation).
      executions: Int. How many executions were timed.
    """

    steps_per_execution: int
    jit_compile: bool
    seconds_per_step: float
    spread_seconds: float
    executions: int


@dataclasses.dataclass(frozen=True)
class TuningResult:
    """The outcome of one `fit` with `K80Tuner`.

    Attributes:
      status: String. `"tuned"` (decided by measurement), `"cached"` (decided
        by an earlier run), `"pinned"` (somebody's wish was kept), `"off"`
        (plain Keras ran) or `"undecided"` (training ended first).
      reason: String. Why, in one sentence.
      steps_per_execution: Int. The value in force when training ended.
      jit_compile: Bool. Whether XLA compiled the step when training ended.
      candidates: Tuple of `Candidate`, in the order of first trial.
      steps: Int. Training steps that were run.
      steps_per_second: Float or `None`. Over all epochs, validation excluded.
      input_wait_fraction: Float between 0 and 1, or `None` where it was not
        measured. Share of the steps' time spent waiting for the next batch.
      seconds_saved: Float. Predicted from the trial: what the steps would
        have taken one by one, less what the model of their time says now.
      seconds_spent: Float. Time that trials cost beyond useful training.
      retunings: Int. How often the trial was run again after a lasting drift.
      notes: Tuple of strings. Each is one thing that the user should know.
      environment: Dict of strings: device, TensorFlow and Keras versions.
    """

    status: str
    reason: str
    steps_per_execution: int = 1
    jit_compile: bool = False
    candidates: tuple[Candidate, ...] = ()
    steps: int = 0
    steps_per_second: float | None = None
    input_wait_fraction: float | None = None
    seconds_saved: float = 0.0
    seconds_spent: float = 0.0
    retunings: int = 0
    notes: tuple[str, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the result as a JSON object with the attributes' names."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    def __str__(self) -> str:
        xla = "XLA" if self.jit_compile else "no XLA"
        lines = [
            f"K80Tuner: {self.status}: steps_per_execution="
            f"{self.steps_per_execution}, {xla}",
            f"  why: {self.reason}",
        ]
        if self.candidates:
            lines.append("  steps/execution  XLA    ms/step   +-     executions")
        for c in self.candidates:
            lines.append(
                f"  {c.steps_per_execution:15d}  {'yes' if c.jit_compile else 'no ':3s}"
                f"  {1e3 * c.seconds_per_step:9.3f}  {1e3 * c.spread_seconds:6.3f}"
                f"  {c.executions:6d}"
            )
        speed = (
            "" if self.steps_per_second is None else f", {self.steps_per_second:.1f}/s"
        )
        lines.append(f"  steps run: {self.steps}{speed}")
        if self.input_wait_fraction is not None:
            lines.append(
                f"  waiting for input: {100 * self.input_wait_fraction:.1f} % "
                "of the time"
            )
        lines.append(
            f"  saved about {self.seconds_saved:.2f} s (predicted from the trial), "
            f"spent {self.seconds_spent:.2f} s on trials"
        )
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)
