"""Heat, power, memory errors and settings of each die, as the driver tells them."""

from __future__ import annotations

from typing import Callable

from k80keras.machine.doctor.findings import Finding, error, ok, skipped, warning
from k80keras.machine.doctor.remedies import on_host
from k80keras.machine.hardware import GK210
from k80keras.machine.system import Die, System

# A judgement, not a measurement: a K80 under load warms by several degrees in
# the seconds that it takes to react.
_CLOSE_CELSIUS = 5
_MEMORY_CLOCK = GK210.memory_clock_mhz


def _where(system: System, wrong: Callable[[Die], object]) -> list[Die]:
    return [die for die in system.dies if wrong(die)]


def _names(dies: list[Die]) -> str:
    return ", ".join(die.pci_bus_id or f"number {die.nvml_index}" for die in dies)


def _indices(dies: list[Die]) -> str:
    return ",".join(str(die.nvml_index) for die in dies)


def heat(system: System) -> Finding:
    """Is a die about to slow down, or to switch itself off?"""
    if not system.dies:
        return skipped("no die answers")

    def margin(die: Die) -> float:
        limit = die.temperature_slowdown_celsius
        if die.temperature_celsius is None or limit is None:
            return float("inf")
        return limit - die.temperature_celsius

    def slowed(die: Die) -> bool:
        reasons = set(die.throttle_reasons or ())
        return bool(reasons & {"hw_thermal_slowdown", "sw_thermal_slowdown"})

    hot = _where(system, lambda die: slowed(die) or margin(die) <= 0)
    close = _where(system, lambda die: margin(die) <= _CLOSE_CELSIUS)
    if not hot and not close:
        warmest = max((die.temperature_celsius or 0 for die in system.dies), default=0)
        return ok(f"at most {warmest} C")
    found = hot or close
    temperatures = ", ".join(
        f"{die.pci_bus_id} {die.temperature_celsius} C" for die in found
    )
    why = (
        f"The card slows down at {found[0].temperature_slowdown_celsius} C and "
        f"switches off at {found[0].temperature_shutdown_celsius} C."
    )
    command = f"nvidia-smi -i {_indices(found)} -q -d TEMPERATURE,PERFORMANCE"
    if all(die.is_k80 for die in found):
        why += (
            " A K80 has no fan: it needs a server's airflow, or a blower, through its "
            "whole length. Until then lower clocks keep it cooler."
        )
        command = (
            f"sudo nvidia-smi -i {_indices(found)} -ac {_MEMORY_CLOCK},"
            f"{GK210.base_clock_mhz}"
        )
    say = error if hot else warning
    title = "too hot" if hot else f"within {_CLOSE_CELSIUS} C of slowing down"
    return say(f"{title}: {temperatures}", why, on_host(system.host, command))


def power(system: System) -> Finding:
    """Does the card get its power, and may it use it?"""
    if not system.dies:
        return skipped("no die answers")
    brakes = {"hw_power_brake_slowdown", "hw_slowdown"}
    thermal = {"hw_thermal_slowdown"}
    braked = _where(
        system,
        lambda die: die.is_k80
        and brakes & set(die.throttle_reasons or ())
        and not thermal & set(die.throttle_reasons or ())
        and (die.temperature_celsius or 0) + _CLOSE_CELSIUS
        < (die.temperature_slowdown_celsius or 1000),
    )
    if braked:
        return error(
            f"held down by the hardware while cool: {_names(braked)}",
            "The power brake does that: the supply is too weak, or the plug is wrong. "
            "A K80 wants the 8-pin plug of a CPU (EPS12V), not that of a graphics "
            "card; 300 W for both dies.",
            on_host(
                system.host, f"nvidia-smi -i {_indices(braked)} -q -d POWER,PERFORMANCE"
            ),
        )
    capped = _where(
        system,
        lambda die: die.is_k80
        and (die.power_limit_watts or 0) < (die.power_limit_default_watts or 0),
    )
    if capped:
        watts = capped[0].power_limit_default_watts
        return warning(
            f"power limit below its default of {watts:g} W: {_names(capped)}",
            "Under load a K80 already spends much of its time at its power limit.",
            on_host(
                system.host, f"sudo nvidia-smi -i {_indices(capped)} -pl {watts:g}"
            ),
        )
    return ok("no power cap below the default")


def memory_errors(system: System) -> Finding:
    """Does ECC report cells that fail?"""
    if not system.dies:
        return skipped("no die answers")
    failed = _where(
        system, lambda die: die.retired_pages_pending or die.ecc_uncorrected_volatile
    )
    if failed:
        counts = sum(die.ecc_uncorrected_volatile or 0 for die in failed)
        return error(
            f"memory errors that ECC could not correct: {_names(failed)}",
            f"{counts} since the driver was loaded; what was computed with them may "
            "be wrong. The driver takes the failing pages out of use at a restart.",
            on_host(system.host, "sudo systemctl reboot"),
        )
    worn = _where(system, lambda die: die.retired_pages_double_bit)
    if worn:
        return warning(
            f"pages of memory are out of use: {_names(worn)}",
            "Cells failed in the past and were replaced by others. That is what "
            "retirement is for; a number that grows from week to week is not.",
            on_host(
                system.host,
                f"nvidia-smi -i {_indices(worn)} -q -d PAGE_RETIREMENT,ECC",
            ),
        )
    if any(die.ecc_enabled is False for die in system.dies):
        return ok("ECC is off: more memory, and errors go unseen")
    return ok("no memory errors")


def persistence(system: System) -> Finding:
    """Does the driver keep the card awake?"""
    if not system.dies:
        return skipped("no die answers")
    off = _where(system, lambda die: die.persistence_mode is False and die.is_k80)
    if not off:
        return ok("persistence mode is on")
    return warning(
        f"persistence mode is off: {_names(off)}",
        "The driver forgets the card when the last program ends: each start then "
        "waits for it seconds longer, and clocks and limits that were set are lost.",
        on_host(system.host, "sudo nvidia-smi -pm 1"),
    )


def clocks(system: System) -> Finding:
    """May the card use its boost clock?"""
    if not system.dies:
        return skipped("no die answers")
    slow = _where(
        system,
        lambda die: die.auto_boost is False
        and (die.graphics_clock_application_mhz or 0)
        < min(die.graphics_clock_max_mhz or 0, GK210.boost_clock_mhz)
        and die.is_k80,
    )
    if not slow:
        return ok("boost is allowed")
    now, most = slow[0].graphics_clock_application_mhz, slow[0].graphics_clock_max_mhz
    return warning(
        f"boost is off, and programs run at {now} MHz: {_names(slow)}",
        f"The card can reach {most} MHz where power and heat allow.",
        on_host(
            system.host,
            f"sudo nvidia-smi -i {_indices(slow)} -ac {_MEMORY_CLOCK},{most}",
        ),
    )


def others(system: System) -> Finding:
    """Does another program hold the card's memory?"""
    if not system.dies:
        return skipped("no die answers")
    taken = _where(
        system,
        lambda die: die.processes
        and (die.memory_used_bytes or 0) > (die.memory_total_bytes or 0) / 2,
    )
    if not taken:
        return ok("no other program holds much memory")
    pids = sorted({str(p.pid) for die in taken for p in die.processes or ()})
    remedy = f"ps -o pid,user,etime,args -p {','.join(pids)}"
    if len(taken) < len(system.dies):
        remedy = 'eval "$(k80keras env)"'
    return warning(
        f"more than half of the memory is taken: {_names(taken)}",
        f"By process {', '.join(pids)}. k80keras.configure() puts idle dies first.",
        remedy,
    )
