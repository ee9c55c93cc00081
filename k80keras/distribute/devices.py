"""Which devices a strategy should train on."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from typing import Mapping, Sequence

from k80keras._keras import tf
from k80keras.machine.configure.visible import named_dies
from k80keras.machine.probe import probe
from k80keras.machine.system import Die, System

# A device of CUDA has at most eight peers, and NCCL's rings on PCIe gain nothing
# beyond one machine's boards.
MOST_REPLICAS = 8


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A device that a replica could live on.

    Attributes:
      name: String, TensorFlow's name: `"GPU:1"`.
      kind: String; replicas should all be of one kind.
      board: Int. Candidates of one board share it; `None` for a board of its own.
      board_size: Int. How many dies such a board has.
      busy: Bool. Whether another program has memory on it.
      uuid: String, the die's; `None` if it isn't known.
    """

    name: str
    kind: str = ""
    board: int | None = None
    board_size: int = 1
    busy: bool = False
    uuid: str | None = None


@dataclasses.dataclass(frozen=True)
class Inventory:
    """The devices that TensorFlow may use in this process.

    Attributes:
      candidates: Tuple of `Candidate` in TensorFlow's order: GPUs, else the
        logical CPU devices.
      visible: Tuple of ints, which of the GPUs that CUDA shows they are. A child
        process must show the same ones.
      divided: Bool. Whether the user has divided GPUs into logical devices.
      driver_version: String, empty without a driver.
    """

    candidates: tuple[Candidate, ...]
    visible: tuple[int, ...] = ()
    divided: bool = False
    driver_version: str = ""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Devices for a strategy.

    Attributes:
      devices: Tuple of strings, TensorFlow's names, first replica first.
      reason: String.
      inventory: `Inventory` that they are out of.
    """

    devices: tuple[str, ...]
    reason: str
    inventory: Inventory

    @property
    def visible(self) -> tuple[int, ...]:
        """What `start_devices` needs in a child process."""
        return self.inventory.visible

    @property
    def uuids(self) -> tuple[str, ...]:
        """The dies', in the order of `devices`; empty if they aren't known."""
        by_name = {c.name: c.uuid for c in self.inventory.candidates}
        found = [by_name[name] for name in self.devices]
        return tuple(uuid for uuid in found if uuid) if all(found) else ()


def pick(candidates: Sequence[Candidate]) -> tuple[tuple[str, ...], str]:
    """Returns whole idle boards, else idle dies, else whole boards; 8 at most.

    Args:
      candidates: `Candidate`s in TensorFlow's order.

    Returns:
      Names in the order of replicas, those of one board side by side, and what
      they are.

    >>> board = [Candidate(f"GPU:{n}", "K80", n // 2, 2, busy=n == 1) for n in range(4)]
    >>> pick(board)
    (('GPU:2', 'GPU:3'), '1 idle board')
    """
    kinds = Counter(candidate.kind for candidate in candidates)
    kind = max(kinds, key=lambda name: kinds[name])
    alike = [candidate for candidate in candidates if candidate.kind == kind]
    boards: dict[object, list[Candidate]] = {}
    for candidate in alike:
        key = candidate.name if candidate.board is None else candidate.board
        boards.setdefault(key, []).append(candidate)
    whole = [b for b in boards.values() if len(b) >= b[0].board_size]
    idle_boards = [board for board in whole if not any(c.busy for c in board)]
    idle = [candidate for candidate in alike if not candidate.busy]
    if idle_boards:
        return _fill(idle_boards, "idle board")
    if idle:
        return _fill([[candidate] for candidate in idle], "idle die")
    if whole:
        return _fill(whole, "busy board")
    return _fill([[candidate] for candidate in alike], "busy die")


def _fill(
    groups: Sequence[Sequence[Candidate]], what: str
) -> tuple[tuple[str, ...], str]:
    names: list[str] = []
    taken = 0
    for group in groups:
        if len(names) + len(group) <= MOST_REPLICAS:
            names += [candidate.name for candidate in group]
            taken += 1
    return tuple(names), f"{taken} {what}{'s' * (taken != 1)}"


def choose_devices() -> Choice:
    """Chooses among the devices that TensorFlow may use; starts no GPU.

    On a machine without a GPU all logical CPU devices are chosen.
    """
    inventory = list_devices()
    found = inventory.candidates
    if len(found) == 1:
        what = "one GPU" if inventory.visible else "no GPU"
        return Choice((found[0].name,), f"TensorFlow sees {what}", inventory)
    if inventory.divided or not inventory.visible:
        names = tuple(candidate.name for candidate in found[:MOST_REPLICAS])
        return Choice(names, f"{len(names)} {found[0].kind}s", inventory)
    names, what = pick(found)
    kind = next(c.kind for c in found if c.name == names[0])
    return Choice(names, f"{what} of {kind or 'GPUs'}", inventory)


def list_devices() -> Inventory:
    """Returns the devices that TensorFlow may use; starts no GPU."""
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        # No GPU, so nothing is started that would take memory.
        count = len(tf.config.list_logical_devices("CPU"))
        kind = "logical CPU device"
        return Inventory(tuple(Candidate(f"CPU:{n}", kind) for n in range(count)))
    physical = tf.config.list_physical_devices("GPU")
    places = tuple(physical.index(gpu) for gpu in gpus)
    configured = [tf.config.get_logical_device_configuration(gpu) for gpu in gpus]
    count = sum(len(parts or [None]) for parts in configured)
    if count > len(gpus):
        kind = "logical GPU device"
        found = tuple(Candidate(f"GPU:{n}", kind) for n in range(count))
        return Inventory(found, places, divided=True)
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    kinds = [str(detail.get("device_name", "")) for detail in details]
    system = probe(("nvml",))
    dies = dies_in_order(system, os.environ, len(physical))
    mine = [dies[place] if dies else None for place in places]
    return Inventory(
        tuple(describe(kinds, places, mine)),
        places,
        driver_version=system.nvml.driver_version or "",
    )


def describe(
    kinds: Sequence[str], places: Sequence[int], dies: Sequence[Die | None]
) -> list[Candidate]:
    """Returns the GPUs that TensorFlow may use as candidates, in its order.

    Args:
      kinds: What each calls itself.
      places: Where each is among all that CUDA shows.
      dies: What NVML says of each; `None` where that is not known. Then the dies
        of a K80 are taken for neighbours on the bus.
    """
    found = []
    for number, (kind, place, die) in enumerate(zip(kinds, places, dies)):
        is_k80 = "K80" in kind
        candidate = Candidate(
            f"GPU:{number}", kind, place // 2 if is_k80 else None, 2 if is_k80 else 1
        )
        if die is not None:
            others = [p for p in die.processes or () if p.pid != os.getpid()]
            known = die.board_id is not None and die.multi_gpu_board is not False
            candidate = dataclasses.replace(
                candidate,
                board=die.board_id if known else candidate.board,
                busy=bool(others),
                uuid=die.uuid,
            )
        found.append(candidate)
    return found


def dies_in_order(
    system: System, environ: Mapping[str, str], count: int
) -> tuple[Die, ...] | None:
    """Returns the die behind each GPU that CUDA shows.

    Args:
      system: `System` with NVML's reading.
      environ: Mapping, the environment that CUDA has seen.
      count: Int, how many GPUs TensorFlow sees.

    Returns:
      Tuple of `Die`; `None` if they can't be told from each other.
    """
    told = environ.get("CUDA_VISIBLE_DEVICES")
    dies = system.dies
    if told is not None:
        dies = tuple(dies[index] for index in named_dies(told, system))
    return dies if len(dies) == count else None


def start_devices(devices: Sequence[str], visible: Sequence[int] = ()) -> None:
    """Makes, in a fresh process, the devices that its parent chose.

    Args:
      devices: TensorFlow's names, as `Choice.devices`.
      visible: As `Choice.visible`.
    """
    # Otherwise newer GPUs multiply with ten bits, which would be no error.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    if any("GPU" in device for device in devices):
        gpus = tf.config.list_physical_devices("GPU")
        shown = [gpus[place] for place in visible] or gpus
        tf.config.set_visible_devices(shown, "GPU")
        for gpu in shown:
            tf.config.experimental.set_memory_growth(gpu, True)
    else:
        tf.config.set_visible_devices([], "GPU")
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * max(1, len(devices))
        tf.config.set_logical_device_configuration(cpu, parts)
