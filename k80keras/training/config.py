"""The settings of one training run, checked without loading TensorFlow."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from k80keras.errors import InvalidArgumentError
from k80keras.training.names import fold

FOLDER_PREFIX = "folder:"


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What `run_training` is asked to do. Fields are named as the flags are.

    Attributes:
      dataset: String. `"digits"`, `"folder:PATH"` or a TensorFlow Datasets
        name. Defaults to `"digits"`.
      data_dir: String or `None`. Where prepared datasets are kept. Defaults to
        a cache folder of the user's.
      image_size: Int or `None`. Images are resized to a square of that many
        pixels. Defaults to the size that all images share, else 224.
      model: String. `"mlp"`, `"cnn"`, `"resnet20"` or a `keras.applications`
        name. Defaults to `"cnn"`.
      batch_size: Int. Images in one training step, on all replicas together.
        Defaults to 32.
      epochs: Int. Epochs in all, those before a resumption included. Defaults
        to 5.
      learning_rate: Float or `None`. Defaults to the optimizer's own.
      optimizer: String. A `keras.optimizers` name. Defaults to `"adam"`.
      jit_compile: String, `"auto"`, `"true"` or `"false"`: whether XLA compiles
        the training step. Defaults to `"auto"`, which measures.
      steps_per_execution: String, `"auto"` or a positive integer: training
        steps in one call into TensorFlow. Defaults to `"auto"`, which measures.
      seed: Int. Decides initial weights and the order of the data. Defaults
        to 0.
      output_dir: String. Where the results go. Defaults to
        `runs/DATASET_MODEL`.
      resume: Bool. Whether to go on with the run in `output_dir`. Defaults to
        `False`.
      mirrored: Bool. Whether to train on all dies that work together, as
        `k80keras.mirrored_strategy` finds them. Defaults to `False`.
      workers: Bool. Whether to train with the other workers that `TF_CONFIG` or
        Slurm name. `output_dir` must be one folder for all. Defaults to `False`.

    Raises:
      InvalidArgumentError: If a value breaks a rule.
    """

    dataset: str = "digits"
    data_dir: str | None = None
    image_size: int | None = None
    model: str = "cnn"
    batch_size: int = 32
    epochs: int = 5
    learning_rate: float | None = None
    optimizer: str = "adam"
    jit_compile: str = "auto"
    steps_per_execution: str = "auto"
    seed: int = 0
    output_dir: str = ""
    resume: bool = False
    mirrored: bool = False
    workers: bool = False

    def __post_init__(self) -> None:
        for name in ("dataset", "model", "optimizer"):
            value = getattr(self, name)
            _require(bool(value.strip()), name, "must not be empty", value)
        for name in ("batch_size", "epochs"):
            value = getattr(self, name)
            _require(value >= 1, name, "must be at least 1", value)
        size, rate = self.image_size, self.learning_rate
        _require(size is None or size >= 1, "image_size", "must be at least 1", size)
        _require(
            rate is None or (rate > 0 and math.isfinite(rate)),
            "learning_rate",
            "must be a positive number",
            rate,
        )
        _require(
            0 <= self.seed < 2**31, "seed", "must be in 0 ... 2147483647", self.seed
        )
        _require(
            self.jit_compile in ("auto", "true", "false"),
            "jit_compile",
            "must be auto, true or false",
            self.jit_compile,
        )
        steps = self.steps_per_execution
        _require(
            steps == "auto" or (steps.isdecimal() and int(steps) >= 1),
            "steps_per_execution",
            "must be auto or a positive integer",
            steps,
        )
        _require(
            not (self.mirrored and self.workers),
            "mirrored",
            "must not stand beside --workers, which uses all dies of each worker",
            self.mirrored,
        )
        folder = self.image_folder
        _require(
            folder is None or folder.is_dir(),
            "dataset",
            f"must be {FOLDER_PREFIX}PATH with the path of a folder that exists",
            self.dataset,
        )

    @property
    def image_folder(self) -> Path | None:
        """The folder of images to train on; `None` for any other dataset."""
        if not self.dataset.startswith(FOLDER_PREFIX):
            return None
        return Path(self.dataset[len(FOLDER_PREFIX) :]).expanduser()

    @property
    def output_path(self) -> Path:
        """Where the results go."""
        if self.output_dir:
            return Path(self.output_dir).expanduser()
        folder = self.image_folder
        dataset = self.dataset if folder is None else folder.resolve().name
        name = f"{dataset}_{self.model}"
        return Path("runs") / "".join(
            c if c.isalnum() or c in "._-" else "_" for c in name
        )

    @property
    def tuner_arguments(self) -> dict[str, Any]:
        """Arguments for `K80Tuner`."""
        jit, steps = self.jit_compile, self.steps_per_execution
        return {
            "jit_compile": jit if jit == "auto" else jit == "true",
            "steps_per_execution": steps if steps == "auto" else int(steps),
        }

    def identity(self) -> dict[str, Any]:
        """Returns, by flag, what decides what is learnt.

        A run can be resumed only with the same values. How the steps are
        executed and where things are kept may change in between.
        """
        folder = self.image_folder
        return {
            "dataset": (
                self.dataset if folder is None else f"{FOLDER_PREFIX}{folder.resolve()}"
            ),
            "image_size": self.image_size,
            "model": fold(self.model),
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "optimizer": fold(self.optimizer),
            "seed": self.seed,
        }


def _require(condition: bool, name: str, rule: str, value: object) -> None:
    if not condition:
        raise InvalidArgumentError(f"--{name} {rule}. Received: --{name}={value}")
