"""Which devices are chosen, from plain values; TensorFlow's own in tests/sim."""

from __future__ import annotations

import dataclasses

import pytest

from k80keras.distribute.devices import Candidate, describe, dies_in_order, pick
from k80keras.machine.system import Process
from tests.machine.boxes import change, die, healthy


def k80s(*busy: int, boards: int = 2, hidden: tuple[int, ...] = ()):
    """Returns the dies of K80s as TensorFlow would name those that it sees."""
    seen = [n for n in range(2 * boards) if n not in hidden]
    return [
        Candidate(f"GPU:{place}", "Tesla K80", 768 + n // 2, 2, busy=n in busy)
        for place, n in enumerate(seen)
    ]


def numbers(names):
    return [int(name.rpartition(":")[2]) for name in names]


@pytest.mark.parametrize(
    "candidates, chosen, what",
    [
        (k80s(boards=1), [0, 1], "1 idle board"),
        (k80s(), [0, 1, 2, 3], "2 idle boards"),
        # A busy die slows its neighbour down: its board is left out.
        (k80s(0), [2, 3], "1 idle board"),
        (k80s(3), [0, 1], "1 idle board"),
        # No whole board is idle: idle dies go before a busy board.
        (k80s(0, 3), [1, 2], "2 idle dies"),
        (k80s(0, 1, 3), [2], "1 idle die"),
        (k80s(0, 1, 2, 3), [0, 1, 2, 3], "2 busy boards"),
        # CUDA hides a die of the first board.
        (k80s(hidden=(1,)), [1, 2], "1 idle board"),
        (k80s(hidden=(1, 3)), [0, 1], "2 idle dies"),
        (k80s(boards=5), list(range(8)), "4 idle boards"),
    ],
)
def test_whole_idle_boards_then_idle_dies(candidates, chosen, what):
    assert pick(candidates) == (tuple(f"GPU:{n}" for n in chosen), what)


def test_other_gpus_are_left_out():
    display = Candidate("GPU:2", "Quadro K620")
    names, _ = pick([*k80s(boards=1), display])
    assert numbers(names) == [0, 1]


def test_gpus_of_one_die_each_are_boards_of_their_own():
    others = [Candidate(f"GPU:{n}", "Tesla T4", busy=n == 1) for n in range(3)]
    assert pick(others) == (("GPU:0", "GPU:2"), "2 idle boards")


def test_boards_of_one_die_each_fill_up_to_eight():
    others = [Candidate(f"GPU:{n}", "Tesla T4") for n in range(11)]
    assert numbers(pick(others)[0]) == list(range(8))


def test_boards_come_from_nvml_and_else_from_the_bus():
    # A riser has put the second die of board 7 behind another board.
    dies = [
        die(0, board_id=7),
        die(1, board_id=9),
        die(2, board_id=9),
        die(3, board_id=7),
    ]
    told = describe(["Tesla K80"] * 4, range(4), dies)
    assert [candidate.board for candidate in told] == [7, 9, 9, 7]
    assert [candidate.uuid for candidate in told] == [die.uuid for die in dies]

    guessed = describe(["Tesla K80"] * 4, range(4), [None] * 4)
    assert [candidate.board for candidate in guessed] == [0, 0, 1, 1]
    # The user has hidden the first die: the others keep their boards.
    guessed = describe(["Tesla K80"] * 3, [1, 2, 3], [None] * 3)
    assert [candidate.board for candidate in guessed] == [0, 1, 1]


def test_a_die_is_busy_for_others_only():
    import os

    mine = die(0, processes=(Process(os.getpid(), 1),))
    theirs = die(1, processes=(Process(1, 1), Process(os.getpid(), 1)))
    unknown = die(2, processes=None)
    told = describe(["Tesla K80"] * 3, range(3), [mine, theirs, unknown])
    assert [candidate.busy for candidate in told] == [False, True, False]


def test_cuda_visible_devices_says_which_die_is_which():
    box = healthy()
    uuids = [d.uuid for d in box.dies]

    def order(value, count):
        environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
        found = dies_in_order(box, environ, count)
        return None if found is None else [uuids.index(d.uuid) for d in found]

    assert order(None, 4) == [0, 1, 2, 3]
    assert order("3,1", 2) == [3, 1]
    assert order(f"{uuids[2]},0", 2) == [2, 0]
    # CUDA shows another number than NVML knows: nobody can tell.
    assert order(None, 3) is None
    lost = change(box, "nvml", dies=(dataclasses.replace(box.dies[0], lost=True),))
    assert dies_in_order(lost, {}, 1) is None
