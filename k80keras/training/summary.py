"""What a finished run hands back."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """The outcome of `run_training`.

    Attributes:
      epochs: Int. Complete epochs, those before a resumption included.
      validation_accuracy: Float between 0 and 1, after the last epoch.
      model_path: Path of the trained model, in Keras' `.keras` format.
      history_path: Path of the CSV file with one row for each epoch.
      tuning_path: Path of what `K80Tuner` found, as JSON.
      report_path: Path of the HTML report; `None` if jinja2 is missing.
    """

    epochs: int
    validation_accuracy: float
    model_path: Path
    history_path: Path
    tuning_path: Path
    report_path: Path | None

    def __str__(self) -> str:
        report = 'none: pip install "k80keras[report]"'
        return "\n".join(
            [
                f"Validation accuracy: {self.validation_accuracy:.4f} "
                f"after {self.epochs} epoch{'s' * (self.epochs != 1)}",
                f"Saved model: {self.model_path}",
                f"History:     {self.history_path}",
                f"Tuning:      {self.tuning_path}",
                f"HTML report: {self.report_path or report}",
            ]
        )
