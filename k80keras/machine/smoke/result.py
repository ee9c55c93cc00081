"""What the smoke test tells, as plain frozen values."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from k80keras.machine.hardware import GK210
from k80keras.machine.smoke.ops import OPERATIONS

# A K80 at less than this share of the published rate is slow.
_SLOW = 0.5


@dataclasses.dataclass(frozen=True)
class SmokeResult:
    """What became of one operation on one device.

    Attributes:
      device: String such as `"GPU:0"`, `"GPU:0,GPU:1"` for both together, or
        `"host"` for what concerns none.
      operation: String, one of `OPERATIONS`, or what comes before them:
        `"import"` (of TensorFlow) and `"devices"` (their start).
      library: String, what computes it.
      state: String. `"ok"`; `"slow"` (right, but at under half of the published
        rate); `"wrong"` (values); `"failed"` (an exception); `"aborted"` (the
        process); `"hung"`; `"skipped"`.
      seconds: Float. Median time of a call; of import and start the only one.
      rate: Float, in `rate_unit`.
      expected_rate: Float. What one die of a K80 was measured to reach,
        published; on other devices it is there to compare with, no more.
      message: String. What happened, or the speed in words.
      rate_unit: String, `"FLOP/s"` or `"B/s"`.
    """

    device: str
    operation: str
    library: str
    state: str = "skipped"
    seconds: float | None = None
    rate: float | None = None
    expected_rate: float | None = None
    message: str = ""
    rate_unit: str | None = None

    @property
    def subject(self) -> str:
        """What this is about, to begin a sentence with."""
        before = {"import": "importing TensorFlow", "devices": "starting the devices"}
        return before.get(self.operation, f"{self.operation} on {self.device}")


@dataclasses.dataclass(frozen=True)
class SmokeReport:
    """All results of a smoke test.

    Attributes:
      devices: Tuple of strings, the devices that TensorFlow listed.
      results: Tuple of `SmokeResult` in the order in which they ran.
      log: Tuple of strings, the last lines written by each process that did not
        come to its end.
    """

    devices: tuple[str, ...]
    results: tuple[SmokeResult, ...]
    log: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[SmokeResult, ...]:
        """The results that are wrong, failed, aborted or hung."""
        good = ("ok", "slow", "skipped")
        return tuple(result for result in self.results if result.state not in good)


def judge(
    blank: SmokeResult,
    answer: Mapping[str, Any],
    compute_capability: tuple[int, ...] = (),
) -> SmokeResult:
    """Returns the result of an operation from what its process answered.

    Args:
      blank: `SmokeResult` with device, operation and library.
      answer: Mapping: `state`, and either `message`, or `seconds`, `flops` and
        `moved_bytes` of one call.
      compute_capability: Tuple of ints; empty for a CPU.
    """
    state, message = answer["state"], answer.get("message", "")
    if state != "ok":
        verb = {"wrong": "gave wrong values:", "failed": "raised"}.get(state, "")
        message = " ".join(filter(None, (blank.subject, verb, message)))
        return dataclasses.replace(blank, state=state, message=message)
    seconds, operation = answer["seconds"], OPERATIONS.get(blank.operation)
    result = dataclasses.replace(blank, state="ok", seconds=seconds)
    if operation is None or operation.rate_unit is None:
        return dataclasses.replace(result, message=message or f"{seconds:.3g} s")
    unit, published = operation.rate_unit, operation.published
    rate = answer["flops" if unit == "FLOP/s" else "moved_bytes"] / seconds
    message = readable_rate(rate, unit)
    if published is not None:
        share, known = rate / published.low, readable_rate(published.low, unit)
        message += f", {share:.2g} of a GK210's {known} ({published.conditions})"
        if compute_capability == GK210.compute_capability and share < _SLOW:
            state, message = "slow", f"{blank.subject} is slow: {message}"
    return dataclasses.replace(
        result,
        state=state,
        rate=rate,
        rate_unit=unit,
        expected_rate=published.low if published else None,
        message=message,
    )


def readable_rate(rate: float, unit: str) -> str:
    """Returns a rate in words.

    >>> readable_rate(2.9e12, "FLOP/s")
    '2.9 TFLOP/s'
    """
    for prefix, size in (("T", 1e12), ("G", 1e9)):
        if rate >= size:
            return f"{rate / size:.3g} {prefix}{unit}"
    return f"{rate / 1e6:.3g} M{unit}"
