"""One page that tells what the tuner found, in one file that needs no network."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from k80keras.errors import MissingDependencyError
from k80keras.files import write_text
from k80keras.fit.result import Candidate, TuningResult
from k80keras.report.charts import HEIGHT, WIDTH, make_charts

_HEADLINES = {
    "tuned": "Decided by measurement",
    "cached": "Decided by an earlier run's measurement",
    "pinned": "Kept as asked for",
    "off": "Plain Keras ran",
    "undecided": "Training ended before a decision",
}


def write_html(
    path: str | os.PathLike[str],
    result: TuningResult,
    history: Mapping[str, Sequence[float]],
    title: str = "K80Tuner report",
) -> None:
    """Writes a self-contained HTML page about one training run.

    The file appears by rename: it is the old page or the new one, never half.

    Args:
      path: Where the page is to be. Its folder must exist.
      result: `TuningResult`.
      history: Name to one number for each epoch, as in Keras' `History`. May be
        empty.
      title: String. Defaults to `"K80Tuner report"`.

    Raises:
      MissingDependencyError: If jinja2 is missing.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependencyError(
            'The HTML report needs jinja2: pip install "k80keras[report]"'
        ) from error
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    source = resources.files("k80keras.report").joinpath("page.html")
    template = environment.from_string(source.read_text(encoding="utf-8"))
    page = template.render(
        title=title,
        result=result,
        headline=_HEADLINES.get(result.status, result.status),
        device=_device(result),
        tiles=_tiles(result, history),
        rows=_candidate_rows(result),
        charts=make_charts(history),
        width=WIDTH,
        height=HEIGHT,
    )
    write_text(path, page)


def _device(result: TuningResult) -> str:
    known = {key.lower(): value for key, value in result.environment.items()}
    return known.get("device", "the device of this run (its name is not known)")


def _tiles(
    result: TuningResult, history: Mapping[str, Sequence[float]]
) -> list[tuple[str, str]]:
    """Returns the few numbers that people look for first: value and meaning."""
    tiles = []
    if result.steps_per_second is not None:
        tiles.append((f"{result.steps_per_second:,.1f}", "training steps per second"))
    if result.input_wait_fraction is not None:
        wait = f"{100 * result.input_wait_fraction:.1f} %"
        tiles.append((wait, "of the time waiting for input"))
    accuracy = history.get("val_accuracy", ())
    if len(accuracy) and math.isfinite(accuracy[-1]):
        tiles.append((f"{100 * accuracy[-1]:.1f} %", "validation accuracy at the end"))
    if result.candidates:
        tiles.append((f"{result.seconds_saved:.2f} s", "saved, as predicted"))
        tiles.append((f"{result.seconds_spent:.2f} s", "spent on trials"))
    tiles.append((f"{result.steps:,}", "training steps run"))
    return tiles


def _candidate_rows(result: TuningResult) -> list[dict[str, Any]]:
    slowest = max((c.seconds_per_step for c in result.candidates), default=0.0)

    def is_chosen(candidate: Candidate) -> bool:
        return (candidate.steps_per_execution, candidate.jit_compile) == (
            result.steps_per_execution,
            result.jit_compile,
        )

    return [
        {
            "steps": candidate.steps_per_execution,
            "xla": "yes" if candidate.jit_compile else "no",
            "ms": f"{1e3 * candidate.seconds_per_step:.3f}",
            "spread": f"{1e3 * candidate.spread_seconds:.3f}",
            "executions": candidate.executions,
            "share": (
                round(100 * candidate.seconds_per_step / slowest) if slowest else 0
            ),
            "chosen": is_chosen(candidate),
        }
        for candidate in result.candidates
    ]
