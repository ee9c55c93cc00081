"""Trains an image classifier with K80Tuner; a killed run goes on with --resume.

    python scripts/train.py --dataset=digits --model=cnn --output_dir=runs/digits
    python scripts/train.py --dataset=digits --model=cnn --output_dir=runs/digits \
        --resume --epochs=10
    python scripts/train.py --mirrored --batch_size=128
    k80keras launch --workers localhost:2222,localhost:2223 \
        "python scripts/train.py --workers --batch_size=128 --resume"
"""

from __future__ import annotations

import sys
from typing import NoReturn

from absl import app, flags, logging

from k80keras import configure
from k80keras.errors import K80KerasError
from k80keras.training import RunConfig, run_training

_DEFAULTS = RunConfig()

flags.DEFINE_string(
    "dataset",
    _DEFAULTS.dataset,
    "digits, folder:PATH (a subfolder of images for each class), or the name of a "
    "TensorFlow Datasets set of labelled images.",
)
flags.DEFINE_string(
    "data_dir", _DEFAULTS.data_dir, "Folder where prepared datasets are kept."
)
flags.DEFINE_integer(
    "image_size",
    _DEFAULTS.image_size,
    "Resize images to a square of that many pixels. Default: the size that all of "
    "them share, else 224.",
)
flags.DEFINE_string(
    "model", _DEFAULTS.model, "mlp, cnn, resnet20, or a keras.applications name."
)
flags.DEFINE_integer(
    "batch_size",
    _DEFAULTS.batch_size,
    "Images in a training step, on all replicas together.",
)
flags.DEFINE_integer(
    "epochs", _DEFAULTS.epochs, "Epochs in all, those before a resumption included."
)
flags.DEFINE_float(
    "learning_rate", _DEFAULTS.learning_rate, "Default: the optimizer's own."
)
flags.DEFINE_string(
    "optimizer", _DEFAULTS.optimizer, "A keras.optimizers name: adam, sgd, rmsprop ..."
)
flags.DEFINE_enum(
    "jit_compile",
    _DEFAULTS.jit_compile,
    ["auto", "true", "false"],
    "Whether XLA compiles the training step; auto measures.",
)
flags.DEFINE_string(
    "steps_per_execution",
    _DEFAULTS.steps_per_execution,
    "Training steps in one call into TensorFlow, or auto, which measures.",
)
flags.DEFINE_integer(
    "seed", _DEFAULTS.seed, "Decides initial weights and the order of the data."
)
flags.DEFINE_string(
    "output_dir",
    _DEFAULTS.output_dir,
    "Folder for model, history, tuning and report. Default: runs/DATASET_MODEL.",
)
flags.DEFINE_bool(
    "resume", _DEFAULTS.resume, "Go on with the run in output_dir, if there is one."
)
flags.DEFINE_bool(
    "mirrored", _DEFAULTS.mirrored, "Train on all dies that work together."
)
flags.DEFINE_bool(
    "workers",
    _DEFAULTS.workers,
    "Train with the other workers that TF_CONFIG or Slurm name; output_dir is one "
    "folder for all.",
)


def main() -> None:
    """Trains as the flags say and prints where the results are."""
    app.define_help_flags()
    try:
        rest = flags.FLAGS(sys.argv)
    except flags.Error as error:
        fail(error)
    if len(rest) > 1:
        fail(f"Every option is --name=value. Received: {rest[1]}")
    logging.set_verbosity(logging.ERROR)
    names = RunConfig.__dataclass_fields__
    try:
        config = RunConfig(**{name: flags.FLAGS[name].value for name in names})
        configure()
        print(run_training(config))
    except K80KerasError as error:
        fail(error)
    except KeyboardInterrupt:
        print("\nInterrupted. The same command with --resume goes on.", file=sys.stderr)
        sys.exit(130)


def fail(error: Exception | str) -> NoReturn:
    """Says in one line what is wrong with the command."""
    print("train.py: " + " ".join(str(error).split()), file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    # Not `app.run`: it answers a wrong flag with a page of help, and Keras 2.14
    # loaded inside it makes plain tensors of `keras.Input`.
    main()
