"""A training run from its settings to its results, resumable at any moment."""

from __future__ import annotations

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
    with output.claimed(path, config.resume):
        checkpoint = _checkpoint_to_resume(config) if config.resume else None
        # Only now: the checks above answer at once, TensorFlow takes seconds.
        with quiet_loading():
            from k80keras.training import loop

            devices = loop.describe_devices()
        print(devices)
        return loop.train(config, checkpoint)


def _checkpoint_to_resume(config: RunConfig) -> Checkpoint | None:
    folder = config.output_path / output.CHECKPOINTS
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
