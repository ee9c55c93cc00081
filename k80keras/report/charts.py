"""Numbers per epoch to lines in an SVG: pure functions on frozen values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

WIDTH = 360
HEIGHT = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 12, 26

_SPEED = {
    "steps_per_second": "Training steps per second",
    "input_wait_fraction": "Share of time spent waiting for input",
}


@dataclasses.dataclass(frozen=True)
class Line:
    """One curve.

    Attributes:
      label: String. What the legend says.
      paths: Tuple of strings. Coordinates of connected points, as SVG's
        `polyline` takes them; a value that isn't finite breaks the line.
      points: Tuple of `(x, y, text)`: where each value is, and the value.
    """

    label: str
    paths: tuple[str, ...]
    points: tuple[tuple[float, float, str], ...]


@dataclasses.dataclass(frozen=True)
class Chart:
    """A plot over epochs, in units of the `WIDTH` by `HEIGHT` view box.

    Attributes:
      title: String.
      lines: Tuple of `Line`.
      y_ticks: Tuple of `(y, text)`.
      x_ticks: Tuple of `(x, text)`; epochs count from 1.
    """

    title: str
    lines: tuple[Line, ...]
    y_ticks: tuple[tuple[float, str], ...]
    x_ticks: tuple[tuple[float, str], ...]


def make_charts(history: Mapping[str, Sequence[float]]) -> list[Chart]:
    """Returns one chart for each quantity, training and validation together.

    Args:
      history: Name to one number for each epoch, as in Keras' `History`.

    Returns:
      List of `Chart`: the loss, the metrics, then speed and input wait.
      Quantities without a finite number are left out.

    >>> [chart.title for chart in make_charts({"loss": [1.0], "val_loss": [2.0]})]
    ['Loss']
    """
    names = [name for name in history if not name.startswith("val_")]
    names += [n[4:] for n in history if n.startswith("val_") and n[4:] not in history]
    names.sort(key=lambda name: (name in _SPEED, name != "loss"))
    charts = []
    for name in names:
        curves = {}
        if name in history:
            curves["training"] = history[name]
        if f"val_{name}" in history:
            curves["validation"] = history[f"val_{name}"]
        title = _SPEED.get(name) or name.replace("_", " ").capitalize()
        chart = _make_chart(title, curves, from_zero=name in _SPEED)
        if chart is not None:
            charts.append(chart)
    return charts


def _make_chart(
    title: str, curves: Mapping[str, Sequence[float]], from_zero: bool
) -> Chart | None:
    finite = [v for values in curves.values() for v in values if math.isfinite(v)]
    if not finite:
        return None
    low = min(finite)
    ticks = nice_ticks(min(0.0, low) if from_zero else low, max(finite))
    low, high = ticks[0], ticks[-1]
    epochs = max(len(values) for values in curves.values())

    def x_of(index: int) -> float:
        span = WIDTH - _LEFT - _RIGHT
        return round(_LEFT + span * (index / (epochs - 1) if epochs > 1 else 0.5), 1)

    def y_of(value: float) -> float:
        span = HEIGHT - _TOP - _BOTTOM
        return round(_TOP + span * (1 - (value - low) / (high - low)), 1)

    def draw(label: str, values: Sequence[float]) -> Line:
        paths, points, current = [], [], []
        for index, value in enumerate(values):
            if math.isfinite(value):
                x, y = x_of(index), y_of(value)
                points.append((x, y, f"{label}, epoch {index + 1}: {value:.4g}"))
                current.append(f"{x},{y}")
            if not math.isfinite(value) or index == len(values) - 1:
                paths.append(" ".join(current))
                current = []
        return Line(label, tuple(p for p in paths if p), tuple(points))

    stride = max(1, math.ceil(epochs / 8))
    return Chart(
        title,
        tuple(draw(label, values) for label, values in curves.items()),
        tuple((y_of(tick), f"{tick:.4g}") for tick in ticks),
        tuple((x_of(i), str(i + 1)) for i in range(0, epochs, stride)),
    )


def nice_ticks(low: float, high: float) -> list[float]:
    """Returns three to six round numbers that enclose `low` and `high`.

    >>> nice_ticks(0.03, 0.96)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> nice_ticks(5.0, 5.0)
    [4.5, 4.75, 5.0, 5.25, 5.5]
    """
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-9):
        margin = abs(low) * 0.1 or 1.0
        low, high = low - margin, high + margin
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(s * unit for s in (1, 2, 2.5, 5, 10) if s * unit >= 0.999 * rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]
