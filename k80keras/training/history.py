"""The rows of `history.csv`, in the form of Keras' `CSVLogger`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence


def to_csv(rows: Sequence[dict[str, float]]) -> str:
    """Returns the rows as CSV: `epoch` (from 0), then the names in order.

    Args:
      rows: Dicts, one for each epoch, name to number. A name that an epoch
        lacks becomes an empty cell.

    >>> print(to_csv([{"loss": 0.5}, {"loss": 0.25, "accuracy": 1.0}]), end="")
    epoch,accuracy,loss
    0,,0.5
    1,1.0,0.25
    """
    names = sorted({name for row in rows for name in row})
    text = io.StringIO()
    writer = csv.DictWriter(text, ["epoch", *names], restval="", lineterminator="\n")
    writer.writeheader()
    for epoch, row in enumerate(rows):
        writer.writerow({"epoch": epoch, **row})
    return text.getvalue()


def to_columns(rows: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Returns the rows as one list for each name, NaN where an epoch lacks it.

    >>> to_columns([{"loss": 0.5}, {"loss": 0.25}])
    {'loss': [0.5, 0.25]}
    """
    names = sorted({name for row in rows for name in row})
    return {name: [row.get(name, float("nan")) for row in rows] for name in names}
