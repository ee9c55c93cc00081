"""Which dies a program should see, and in which order."""

from __future__ import annotations

from typing import Mapping, NoReturn

from k80keras.errors import InvalidArgumentError
from k80keras.machine.configure.settings import Devices
from k80keras.machine.system import Die, System


def choose(system: System, wish: Devices) -> tuple[Die, ...] | None:
    """Returns the dies to show, first one first.

    Args:
      system: `System`.
      wish: As `visible_devices` of `configure`, but not `None`.

    Returns:
      Tuple of `Die`, empty for none at all; `None` if there is nothing to choose.

    Raises:
      InvalidArgumentError: If the wish names a die that is not there, is lost,
        or is named twice.
    """
    if wish is False:
        return ()
    if isinstance(wish, (str, bool)) or wish is None:
        return automatic(system)
    dies = tuple(_find(system, name) for name in wish)
    if len({die.nvml_index for die in dies}) < len(dies):
        # CUDA would show none at all.
        _refuse("each die at most once", wish)
    return dies


def automatic(system: System) -> tuple[Die, ...] | None:
    """Returns all dies: idle, then large ones first, boards kept together."""
    dies = system.dies
    if len(system.nvml.dies) < 2 or not dies or any(d.uuid is None for d in dies):
        return None

    def board_of(die: Die) -> list[Die]:
        if die.board_id is None:
            return [die]
        return [other for other in dies if other.board_id == die.board_id]

    def order(die: Die) -> tuple[bool, int, int, int, int]:
        board = board_of(die)
        return (
            bool(die.processes),
            # Coarse: with ECC off a die has a little more, and a display card a
            # lot less.
            -round((die.memory_total_bytes or 0) / 2**32),
            sum(bool(other.processes) for other in board),
            min(other.nvml_index for other in board),
            die.nvml_index,
        )

    return tuple(sorted(dies, key=order))


def named_dies(told: str, system: System) -> list[int]:
    """Returns which of the dies a value of CUDA_VISIBLE_DEVICES names.

    As CUDA reads it: up to the first entry that names none.
    """
    uuids = [die.uuid or "" for die in system.dies]
    named = []
    for entry in map(str.strip, told.split(",")):
        if entry.isascii() and entry.isdigit():
            found = [int(entry)] if int(entry) < len(uuids) else []
        else:
            # A shortened UUID counts if only one die's begins so.
            found = [
                n for n, uuid in enumerate(uuids) if entry and uuid.startswith(entry)
            ]
        if len(found) != 1:
            break
        named += found
    return named


def count(system: System, environ: Mapping[str, str], wish: Devices) -> int:
    """Returns how many GPUs a program will see."""
    here = len(system.dies)
    if not here and system.nvml.error:
        # NVML can't be asked; the kernel knows whose driver has which card.
        here = sum(d.kernel_driver == "nvidia" for d in system.pci or ())
    given = environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None and system.dies:
        return len(named_dies(given, system))
    if given is not None:
        # The first entry that is none ends the list.
        names = [name.strip() for name in given.split(",")]
        bad = [i for i, name in enumerate(names) if name in ("", "-1", "NoDevFiles")]
        return min(here, bad[0] if bad else len(names))
    if wish is False:
        return 0
    if wish is None or isinstance(wish, (str, bool)):
        return here
    return min(here, len(wish))


def _find(system: System, name: int | str) -> Die:
    if isinstance(name, int):
        found = [die for die in system.nvml.dies if die.nvml_index == name]
    else:
        dies = [die for die in system.nvml.dies if die.uuid]
        found = [die for die in dies if name and (die.uuid or "").startswith(name)]
    if len(found) != 1:
        known = ", ".join(f"{d.nvml_index} ({d.uuid})" for d in system.dies)
        _refuse(f"dies of this machine: {known or 'it has none'}", name)
    if not found[0].answers or found[0].uuid is None:
        _refuse("dies that the driver can reach", name)
    return found[0]


def _refuse(rule: str, received: object) -> NoReturn:
    raise InvalidArgumentError(
        f"configure: visible_devices must name {rule}. Received: {received!r}"
    )
