"""What an answer means: a state, a rate and a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from k80keras.machine.smoke.result import SmokeReport, SmokeResult, judge

BLANK = SmokeResult("GPU:1", "matmul", "cuBLAS")
GK210 = (3, 7)


def answer(flops_per_second: float) -> dict[str, Any]:
    times = {"seconds": 0.5, "flops": flops_per_second / 2, "moved_bytes": 1e9}
    return {"state": "ok", **times}


@pytest.mark.parametrize(
    "capability, rate, state",
    [
        (GK210, 1.5e12, "ok"),
        (GK210, 1.4e12, "slow"),  # under half of 2.905 TFLOP/s
        ((7, 0), 1.4e12, "ok"),
        ((), 1e9, "ok"),
    ],
)
def test_only_a_gk210_is_slow(
    capability: tuple[int, ...], rate: float, state: str
) -> None:
    result = judge(BLANK, answer(rate), capability)
    assert (result.state, result.rate, result.rate_unit) == (state, rate, "FLOP/s")
    assert (result.seconds, result.expected_rate) == (0.5, 2.905e12)
    assert "of a GK210's 2.9 TFLOP/s (cuBLAS SGEMM 1536" in result.message


def test_slow_says_what_and_how_slow() -> None:
    message = judge(BLANK, answer(0.29e12), GK210).message
    told = "matmul on GPU:1 is slow: 290 GFLOP/s, 0.1 of a GK210's 2.9 TFLOP/s (cuBLAS"
    assert message.startswith(told)


def test_rate_in_bytes() -> None:
    blank = SmokeResult("GPU:0", "add", "TensorFlow")
    result = judge(blank, answer(1.0), GK210)
    assert (result.rate, result.rate_unit, result.state) == (2e9, "B/s", "slow")


@pytest.mark.parametrize(
    "state, message, told",
    [
        ("wrong", "the product is off", "gave wrong values: the product is off"),
        ("failed", "OSError: no", "raised OSError: no"),
        ("hung", "hung for 9 s", "hung for 9 s"),
    ],
)
def test_bad_ends(state: str, message: str, told: str) -> None:
    result = judge(BLANK, {"state": state, "message": message}, GK210)
    assert (result.state, result.message) == (state, f"matmul on GPU:1 {told}")
    assert (result.seconds, result.rate) == (None, None)


def test_failures_of_a_report() -> None:
    states = ["ok", "slow", "skipped", "wrong", "failed", "aborted", "hung"]
    results = tuple(SmokeResult("GPU:0", "matmul", "cuBLAS", state) for state in states)
    report = SmokeReport(("GPU:0",), results)
    assert [result.state for result in report.failures] == states[3:]
