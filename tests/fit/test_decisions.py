"""Remembered decisions: only the right ones are believed."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from k80keras import K80Tuner
from k80keras.fit.decisions import Decision, load_decision, save_decision
from tests.conformance import data, models

DECISION = Decision(32, False, 1e-3, 2e-3, "measured")
UNTRIED = Decision(32, None, 1e-3, 2e-3, "measured")


@pytest.mark.parametrize("decision", [DECISION, UNTRIED])
def test_round_trip_leaves_one_file(tmp_path, decision):
    save_decision(str(tmp_path / "new"), "abc", decision)
    assert load_decision(str(tmp_path / "new"), "abc") == decision
    assert os.listdir(tmp_path / "new") == ["abc.json"]
    assert load_decision(str(tmp_path), "other") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"x"',
        "{}",
        '{"format": "k80keras-decision-1", "key": "another", "decision": {}}',
        '{"format": "k80keras-decision-1", "key": "abc", "decision": {"x": 1}}',
        json.dumps(
            {
                "format": "k80keras-decision-1",
                "key": "abc",
                "decision": {**vars(DECISION), "steps_per_execution": 10**9},
            }
        ),
        json.dumps(
            {
                "format": "k80keras-decision-1",
                "key": "abc",
                "decision": {**vars(DECISION), "step_seconds": "fast"},
            }
        ),
        "\x00\xff",
    ],
)
def test_damaged_and_foreign_files_are_ignored(tmp_path, text):
    (tmp_path / "abc.json").write_text(text, encoding="latin-1")
    with pytest.warns(UserWarning, match="ignores the remembered decision"):
        assert load_decision(str(tmp_path), "abc") is None


def fit(cache, build=models.mlp, batch=16):
    x, y = data.arrays()
    tuner = K80Tuner(jit_compile=False, cache_dir=cache, verbose=0)
    model = build()
    # 186 steps: the trial is over by then, however noisy.
    model.fit(x, y, batch_size=batch, epochs=6, verbose=0, callbacks=[tuner])
    return tuner.result, model.get_weights()


def test_a_decision_holds_for_the_same_training_only(tmp_path):
    first, _ = fit(tmp_path)
    assert first.status == "tuned"
    files = os.listdir(tmp_path)
    assert len(files) == 1
    again, _ = fit(tmp_path)
    assert again.status == "cached"
    assert again.steps_per_execution == first.steps_per_execution
    assert os.listdir(tmp_path) == files
    other_batch, _ = fit(tmp_path, batch=8)
    assert other_batch.status == "tuned"
    other_model, _ = fit(tmp_path, build=models.dropout)
    assert other_model.status == "tuned"
    assert len(os.listdir(tmp_path)) == 3


def test_remembering_changes_no_weight(tmp_path):
    from k80keras._keras import keras

    results = []
    for cache in (None, tmp_path, tmp_path):
        keras.utils.set_random_seed(5)
        results.append(fit(cache, build=models.dropout)[1])
    for weights in results[1:]:
        for ours, theirs in zip(weights, results[0]):
            np.testing.assert_array_equal(ours, theirs)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="ignores the remembered decision"):
        result, _ = fit(tmp_path / "file" / "below")
    assert result.status == "tuned"
