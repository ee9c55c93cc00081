"""Kept verdicts: how long they hold, for whom, and what becomes of a bad file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from k80keras.machine import self_test
from k80keras.machine.doctor.checks import dies
from k80keras.machine.self_test import SelfTest, Trial, hash_of
from tests.machine.boxes import change, die, healthy

UUIDS = [die(index).uuid or "" for index in (0, 1)]
FACTS = {"driver": "470.256.02", "tensorflow": "2.14.1"}
BLANK = SelfTest(
    ("GPU:0", "GPU:1"), None, dies=tuple(map(hash_of, UUIDS)), facts=FACTS, boot="a"
)
PASSED = BLANK.with_trials((Trial("collective", "ok"),), 12.0)
FELL_BACK = BLANK.with_trials(
    (Trial("collective", "hung", "hung for 20 s"), Trial("hierarchical_copy", "ok")),
    27.0,
)
FAILED = BLANK.with_trials(
    (Trial("collective", "wrong", "a copy arrived damaged"),), 5.0
)


def test_the_first_way_that_works_is_the_verdict():
    assert PASSED.cross_device_ops == "collective" and PASSED.passed
    assert FELL_BACK.cross_device_ops == "hierarchical_copy" and not FELL_BACK.passed
    assert FAILED.cross_device_ops is None and not FAILED.passed


def test_round_trip(tmp_path: Path):
    path = tmp_path / "cache" / "k80keras" / "self_test.json"
    for verdict in (PASSED, dataclasses.replace(FAILED, devices=("GPU:2", "GPU:3"))):
        self_test.keep(path, verdict)

    assert self_test.read(path)[0] == PASSED
    assert len(self_test.read(path)) == 2
    assert [p.name for p in path.parent.iterdir()] == ["self_test.json"]
    assert not any(uuid in path.read_text() for uuid in UUIDS)


def test_a_new_verdict_takes_the_place_of_the_old_one(tmp_path: Path):
    path = tmp_path / "self_test.json"
    for verdict in (FAILED, dataclasses.replace(PASSED, boot="b")):
        self_test.keep(path, verdict)

    assert [verdict.passed for verdict in self_test.read(path)] == [True]


def test_a_good_verdict_outlives_a_restart_and_a_bad_one_does_not():
    after_restart = dataclasses.replace(BLANK, boot="b")

    assert PASSED.is_about(after_restart) and PASSED.is_about(BLANK)
    for bad in (FELL_BACK, FAILED):
        assert bad.is_about(BLANK) and not bad.is_about(after_restart)


@pytest.mark.parametrize(
    "other",
    [
        {"dies": ("x", "y")},
        {"devices": ("GPU:1", "GPU:0")},
        {"facts": {**FACTS, "driver": "470.223.02"}},
        {"facts": {**FACTS, "NCCL_P2P_DISABLE": "1"}},
    ],
)
def test_whatever_changes_calls_for_a_new_test(other):
    assert not PASSED.is_about(dataclasses.replace(BLANK, **other))


@pytest.mark.parametrize("text", ["", "1", "[1]", '[{"devices": []}]', "\x00", "null"])
def test_a_file_that_is_none_is_no_verdict(tmp_path: Path, text: str):
    path = tmp_path / "self_test.json"
    path.write_text(text)

    with pytest.raises(ValueError):
        self_test.read(path)
    assert self_test.read_if_possible(path) == ()
    self_test.keep(path, PASSED)
    assert self_test.read(path) == (PASSED,)


def test_a_folder_that_cannot_be_made_costs_only_the_memory(tmp_path: Path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "self_test.json"

    self_test.keep(path, PASSED)

    assert self_test.read_if_possible(path) == ()


def test_the_cache_folder_is_the_users(tmp_path: Path):
    place = self_test.path_of({"XDG_CACHE_HOME": str(tmp_path)})

    assert place == tmp_path / "k80keras" / "self_test.json"
    assert self_test.path_of({}) == Path.home() / ".cache/k80keras/self_test.json"


def test_the_doctor_shows_the_newest_verdict_on_what_is_here():
    healthy_pair = dies.self_test(healthy(self_test=(FAILED, PASSED)))
    assert healthy_pair.state == "ok"
    assert healthy_pair.title == "GPU:0 and GPU:1 work together (tested in 12 s)"

    fallen_back = dies.self_test(healthy(self_test=(PASSED, FELL_BACK)))
    assert fallen_back.state == "warning"
    assert "collective: hung for 20 s" in fallen_back.why
    assert "by hierarchical_copy" in fallen_back.why

    newer_driver = change(healthy(), "nvml", driver_version="470.300.01")
    for system in (
        healthy(),
        dataclasses.replace(newer_driver, self_test=(FAILED,)),
        change(healthy(self_test=(FAILED,)), "nvml", dies=(die(0), die(2))),
    ):
        assert dies.self_test(system).state == "skipped"
