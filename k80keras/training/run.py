"""A training run from its settings to its results, resumable at any moment."""

from __future__ import annotations

import contextlib
import os

from k80keras.distribute.cluster import this_worker
from k80keras.errors import InvalidArgumentError
from k80keras.training import output
from k80keras.training.checkpoint import (
    Checkpoint,
    discard_leftovers,
    latest_checkpoint,
    require_same,
)
from k80keras.training.config import RunConfig
from k80keras.training.quiet import quiet_loading
from k80keras.training.summary import RunSummary


def run_training(config: RunConfig) -> RunSummary:
    """Trains as `config` says, or goes on where a killed run stopped.

    Everything that an epoch leaves (weights, optimizer state, history) appears
    on disk at once, so a run that is killed and resumed ends with the same
    epochs as one that is not. The order of the data depends on the seed and the
    epoch alone; with a model without dropout and the same hardware the resumed
    run computes what the uninterrupted one would have computed.

    With `config.workers` each of them calls this; the first one writes what all
    of them have learnt.

    Args:
      config: `RunConfig`.

    Returns:
      `RunSummary`.

    Raises:
      InvalidArgumentError: If a setting can't be met: an unknown name, images
        that the model can't take, a folder that can't be written or holds
        another run. Training has not begun then.
      MissingDependencyError: If the dataset needs a package that is missing.
    """
    path = config.output_path
    worker = this_worker(os.environ) if config.workers else None
    is_chief = worker is None or worker.is_chief
    with contextlib.ExitStack() as held:
        if is_chief:
            held.enter_context(output.claimed(path, config.resume))
        else:
            output.require_no_other_run(path, config.resume)
        checkpoint = _checkpoint_to_resume(config, is_chief) if config.resume else None
        # Only now: the checks above answer at once, TensorFlow takes seconds.
        with quiet_loading():
            from k80keras.training import loop

            devices = loop.describe_devices()
        print(devices)
        if worker is not None:
            print(f"This is {worker}; waiting for all", flush=True)
        return loop.train(config, checkpoint, is_chief)


def _checkpoint_to_resume(config: RunConfig, is_chief: bool) -> Checkpoint | None:
    folder = config.output_path / output.CHECKPOINTS
    if is_chief:
        discard_leftovers(folder)
    checkpoint = latest_checkpoint(folder)
    if checkpoint is None:
        return None
    require_same(checkpoint, config.identity())
    if checkpoint.epochs > config.epochs:
        raise InvalidArgumentError(
            "--epochs counts the epochs before the resumption too, and "
            f"{checkpoint.epochs} are complete. Received: --epochs={config.epochs}. "
            f"Resume with --epochs={checkpoint.epochs} or more"
        )
    return checkpoint
