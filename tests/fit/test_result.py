"""Results print, and survive JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from k80keras.fit.result import Candidate, TuningResult

RESULT = TuningResult(
    "tuned",
    "t(K) = 0.8 ms / K + 0.3 ms",
    steps_per_execution=134,
    candidates=(
        Candidate(1, False, 1.1e-3, 2e-5, 6),
        Candidate(1, True, 9e-4, 1e-5, 5),
    ),
    steps=2000,
    steps_per_second=3000.0,
    input_wait_fraction=0.25,
    seconds_saved=1.5,
    seconds_spent=0.02,
    notes=("one thing to know",),
    environment={"device": "CPU"},
)


def test_values_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        RESULT.steps = 3


def test_json_holds_everything():
    loaded = json.loads(RESULT.to_json())
    assert loaded["steps_per_execution"] == 134
    assert loaded["candidates"][1]["jit_compile"] is True
    assert set(loaded) == {f.name for f in dataclasses.fields(TuningResult)}


def test_print_is_for_people():
    text = str(RESULT)
    for part in ("134", "1.100", "25.0 %", "1.50 s", "one thing to know", "XLA"):
        assert part in text
