"""Measures k80keras on this machine; only ratios within one process count.

python scripts/benchmark.py fit --output=fit.json
python scripts/benchmark.py fit --quick --workloads=mlp,cnn
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import NoReturn

from absl import app, flags, logging

# For results on standard output; before TensorFlow loads.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_COMMANDS = ("fit",)
_WORKLOADS = ("mlp", "cnn", "lstm", "transformer", "resnet20")

flags.DEFINE_list("workloads", list(_WORKLOADS), "What to train, out of these.")
flags.DEFINE_integer("rounds", None, "Epochs of each contender, in turns.", 2)
flags.DEFINE_integer("steps", None, "Steps in an epoch, if not the usual.", 16)
flags.DEFINE_float(
    "keras_auto_seconds",
    None,
    "How long the steps_per_execution='auto' of Keras 2.14 may tune beforehand. It "
    "changes something every 50 seconds. Default: one epoch.",
    0.0,
)
flags.DEFINE_bool(
    "quick", False, "Short epochs, no XLA: shows that it runs, not how fast."
)
flags.DEFINE_string("output", None, "File for all values as JSON.")


def main() -> None:
    """Runs the subcommand."""
    app.define_help_flags()
    try:
        rest = flags.FLAGS(sys.argv)[1:]
    except flags.Error as error:
        fail(error)
    if len(rest) != 1 or rest[0] not in _COMMANDS:
        fail(f"The first word must be one of {_COMMANDS}. Received: {' '.join(rest)!r}")
    logging.set_verbosity(logging.ERROR)
    fit()


def fit() -> None:
    """Measures `K80Tuner`."""
    values = {name: flags.FLAGS[name].value for name in flags.FLAGS}
    unknown = set(values["workloads"]) - set(_WORKLOADS)
    if unknown or not values["workloads"]:
        fail(f"--workloads takes {','.join(_WORKLOADS)}. Received: {sorted(unknown)}")
    folder = os.path.dirname(os.path.abspath(values["output"] or "-"))
    if not os.path.isdir(folder):
        fail(f"--output needs a folder that exists. Received: {values['output']}")

    from benchmarks.fit import FULL, QUICK, run_fit

    fields = ("rounds", "steps", "keras_auto_seconds")
    wishes = {name: values[name] for name in fields if values[name] is not None}
    scale = dataclasses.replace(QUICK if values["quick"] else FULL, **wishes)
    print(run_fit(values["workloads"], scale, values["output"], say))


def say(line: str) -> None:
    """Shows progress where it is in nobody's way."""
    print(f"{line} ...", file=sys.stderr, flush=True)


def fail(error: Exception | str) -> NoReturn:
    """Says in one line what is wrong with the command."""
    print("benchmark.py: " + " ".join(str(error).split()), file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
