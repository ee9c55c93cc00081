"""The part of a run that needs TensorFlow: build or load, fit, write results."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from k80keras._keras import keras, tf
from k80keras.callbacks import K80Tuner
from k80keras.data.replicas import batches_for_replicas
from k80keras.errors import InvalidArgumentError
from k80keras.files import replacing, write_text
from k80keras.fit.devices import gpu_names
from k80keras.fit.result import TuningResult
from k80keras.report.html import write_html
from k80keras.training import output
from k80keras.training.checkpoint import Checkpoint, latest_checkpoint
from k80keras.training.config import RunConfig
from k80keras.training.datasets import TrainingData, load_dataset
from k80keras.training.epoch_checkpoint import EpochCheckpoint
from k80keras.training.history import to_columns, to_csv
from k80keras.training.models import build_model, check_model_name
from k80keras.training.optimizers import make_optimizer
from k80keras.training.strategy import make_strategy, require_same_on_all
from k80keras.training.summary import RunSummary


def describe_devices() -> str:
    """Returns one line that says what this run trains on."""
    gpus = gpu_names()
    device = ", ".join(gpus) if gpus else "the CPU"
    if not gpus and tf.test.is_built_with_cuda():
        device += " (TensorFlow finds no GPU; TF_CPP_MIN_LOG_LEVEL=0 shows why)"
    return f"TensorFlow {tf.__version__} on {device}"


def train(
    config: RunConfig, checkpoint: Checkpoint | None, is_chief: bool = True
) -> RunSummary:
    """Trains what is left of the run and writes its results.

    Args:
      config: `RunConfig`.
      checkpoint: `Checkpoint` to go on from; `None` to begin.
      is_chief: Bool. Whether this process writes the results. Defaults to `True`.

    Returns:
      `RunSummary`.
    """
    first_epoch = 0 if checkpoint is None else checkpoint.epochs
    strategy = make_strategy(config)
    require_same_on_all(strategy, first_epoch)
    # The optimizer and the model's name are judged before data is prepared.
    with strategy.scope():
        optimizer = make_optimizer(config.optimizer, config.learning_rate)
    check_model_name(config.model)
    data = load_dataset(
        config.dataset,
        config.batch_size,
        config.seed,
        data_dir=config.data_dir,
        image_size=config.image_size,
    )
    # After the data, whose preparation draws random numbers. Keras 2 doesn't save
    # the state of dropout: go on with other masks than those of the first epoch.
    keras.utils.set_random_seed(config.seed + first_epoch)
    with strategy.scope():
        if checkpoint is None:
            model = build_model(config.model, data.input_shape, data.num_classes)
        else:
            model = keras.models.load_model(str(checkpoint.model_path))
            optimizer = model.optimizer
        loss = keras.losses.SparseCategoricalCrossentropy()
        model.compile(optimizer, loss, metrics=["accuracy"])
    if checkpoint is not None:
        _require_same_data(checkpoint, data)
    print(_opening_line(config, data, first_epoch))
    result = None
    with contextlib.ExitStack() as held:
        path = config.output_path
        if not is_chief:
            # All must save, as all are asked for some weights; one save is kept.
            path = Path(held.enter_context(tempfile.TemporaryDirectory()))
        if first_epoch < config.epochs:
            result = _fit(config, model, data, checkpoint, path)
            print(result)
            checkpoint = latest_checkpoint(path / output.CHECKPOINTS)
        if checkpoint is None:
            raise RuntimeError(f"training ended without a checkpoint in {path}")
        if is_chief:
            _write_results(config, checkpoint, result)
    return _summary(config, checkpoint)


def _fit(
    config: RunConfig,
    model: Any,
    data: TrainingData,
    checkpoint: Checkpoint | None,
    path: Path,
) -> TuningResult | None:
    first_epoch = 0 if checkpoint is None else checkpoint.epochs
    strategy = model.distribute_strategy
    tuner = K80Tuner(**config.tuner_arguments)
    saver = EpochCheckpoint(
        path,
        {**config.identity(), **data.facts()},
        [] if checkpoint is None else list(checkpoint.history),
    )
    try:
        model.fit(
            batches_for_replicas(
                data.train(first_epoch, config.epochs), strategy=strategy
            ),
            steps_per_epoch=data.steps_per_epoch,
            validation_data=batches_for_replicas(data.validation, strategy=strategy),
            initial_epoch=first_epoch,
            epochs=config.epochs,
            callbacks=[tuner, saver],
            shuffle=False,  # the data is shuffled already
            verbose=1 if sys.stdout.isatty() else 2,
        )
    except tf.errors.OpError as error:
        damage = data.find_damage()
        if damage is None:
            raise
        raise InvalidArgumentError(damage) from error
    return tuner.result


def _write_results(
    config: RunConfig, checkpoint: Checkpoint, result: TuningResult | None
) -> None:
    path = config.output_path
    with replacing(path / output.MODEL) as temporary:
        shutil.copyfile(checkpoint.model_path, temporary)
    write_text(path / output.HISTORY, to_csv(checkpoint.history))
    tuning, report = path / output.TUNING, path / output.REPORT
    if result is not None or not (tuning.exists() and report.exists()):
        # Else nothing was trained, and what the training found stays.
        result = result or TuningResult(
            "off", "every epoch was complete when the run was resumed: nothing to tune"
        )
        write_text(tuning, result.to_json())
        if _can_draw():
            title = f"{config.model} on {config.dataset}"
            write_html(report, result, to_columns(checkpoint.history), title=title)


def _summary(config: RunConfig, checkpoint: Checkpoint) -> RunSummary:
    path = config.output_path
    return RunSummary(
        epochs=checkpoint.epochs,
        validation_accuracy=checkpoint.history[-1]["val_accuracy"],
        model_path=path / output.MODEL,
        history_path=path / output.HISTORY,
        tuning_path=path / output.TUNING,
        report_path=path / output.REPORT if _can_draw() else None,
    )


def _can_draw() -> bool:
    return importlib.util.find_spec("jinja2") is not None


def _require_same_data(checkpoint: Checkpoint, data: TrainingData) -> None:
    for name, now in data.facts().items():
        before = checkpoint.identity.get(name)
        if before != now:
            raise InvalidArgumentError(
                "A resumed run must keep its data: it began with "
                f"{name}={before}. Received: {name}={now}. Restore the data, or name "
                "another --output_dir"
            )


def _opening_line(config: RunConfig, data: TrainingData, first_epoch: int) -> str:
    left = f"epochs {first_epoch + 1} to {config.epochs}"
    if first_epoch == config.epochs:
        left = f"all {config.epochs} epochs are complete"
    return (
        f"{config.model} on {config.dataset}: {data.train_examples} images to train "
        f"on, {data.validation_examples} to validate, {data.num_classes} classes; "
        + left
    )
