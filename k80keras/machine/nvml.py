"""The one door to NVML, the driver's management library.

NVML can hang or crash with a sick card, so whoever must go on asks in another
process: `python -m k80keras.machine.nvml` prints a reading, `from_json` reads it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any, Callable, TypeVar

from k80keras.errors import InvalidArgumentError
from k80keras.machine.system import Die, NVMLReading, Process, cuda_version_of

_Result = TypeVar("_Result")

# Numbers instead of pynvml's names: some of those are missing in some versions,
# and its NVML_P2P_CAPS_INDEX_READ is a tuple by mistake.
_ERRORS = {
    4: "no_permission",
    8: "insufficient_power",
    9: "driver_not_loaded",
    12: "library_not_found",
    18: "version_mismatch",
}
_GPU_IS_LOST, _UNKNOWN = 15, 999
_GRAPHICS, _MEMORY = 0, 2
_SHUTDOWN, _SLOWDOWN = 0, 1
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_SINGLE_BIT, _DOUBLE_BIT = 0, 1
_PEERS_READ, _PEERS_OK = 0, 0
# By bit.
_THROTTLE_REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
_VIOLATIONS = {
    "power": 0,
    "thermal": 1,
    "sync_boost": 2,
    "board_limit": 3,
    "low_utilization": 4,
    "reliability": 5,
    "app_clocks": 10,
    "base_clocks": 11,
}
# Words of 64 processors each: as many as Linux' own sets have.
_AFFINITY_WORDS = 16


def read() -> NVMLReading:
    """Returns one look at all dies. Whatever is wrong is said in its values."""
    try:
        import pynvml
    except ImportError:
        return NVMLReading(error="nvidia-ml-py is not installed")
    try:
        with NVML() as nvml:
            return nvml.reading()
    except pynvml.NVMLError as error:
        return NVMLReading(error=_ERRORS.get(error.value, str(error)))


class NVML:
    """NVML, open inside a `with`.

    Raises:
      pynvml.NVMLError: When entered, if NVML cannot be used.
      ImportError: If nvidia-ml-py is not installed.
    """

    def __init__(self) -> None:
        import pynvml

        self._pynvml = pynvml
        missing = pynvml.NVMLError_FunctionNotFound
        # Newer versions raise the second, which is no NVMLError, where they know
        # of a newer function.
        self._no_function = (
            missing,
            getattr(pynvml, "NVMLLibraryMismatchError", missing),
        )
        self._missing: dict[str, None] = {}

    def __enter__(self) -> NVML:
        self._pynvml.nvmlInit()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(self._pynvml.NVMLError):
            self._pynvml.nvmlShutdown()

    def reading(self) -> NVMLReading:
        """Returns one look at all dies."""
        # The count is what a reading cannot do without.
        count = self._pynvml.nvmlDeviceGetCount()
        cuda = cuda_version_of(self._ask("nvmlSystemGetCudaDriverVersion"))
        dies = tuple(self.read_die(index) for index in range(count))
        return NVMLReading(
            driver_version=self._ask("nvmlSystemGetDriverVersion"),
            nvml_version=self._ask("nvmlSystemGetNVMLVersion"),
            cuda_version=cuda,
            dies=dies,
            peers=self._read_peers([die.nvml_index for die in dies if die.answers]),
            missing_functions=tuple(self._missing),
        )

    def read_die(self, index: int) -> Die:
        """Returns everything about one die.

        Args:
          index: Int, by NVML's count.
        """
        try:
            return self._read_die(index, self._pynvml.nvmlDeviceGetHandleByIndex(index))
        except self._pynvml.NVMLError as error:
            # Some drivers say "unknown" of a die that fell off the bus.
            if error.value in (_GPU_IS_LOST, _UNKNOWN):
                return Die(index, lost=True)
            return Die(index, error=_ERRORS.get(error.value, str(error)))

    def _read_die(self, index: int, handle: Any) -> Die:
        def ask(*names: str, of: tuple[Any, ...] = ()) -> Any:
            return self._ask(
                *(f"nvmlDeviceGet{name}" for name in names), of=(handle, *of)
            )

        def number(*names: str, of: tuple[Any, ...] = ()) -> int | None:
            return _map(int, ask(*names, of=of))

        def flag(name: str) -> bool | None:
            return _map(bool, ask(name))

        def watts(*names: str) -> float | None:
            return _map(lambda milliwatts: milliwatts / 1000, ask(*names))

        def retired(cause: int) -> int | None:
            return _map(len, ask("RetiredPages", of=(cause,)))

        memory = ask("MemoryInfo")
        # R470 has the first of two names, a driver of tomorrow only the second.
        processes = ask("ComputeRunningProcesses_v2", "ComputeRunningProcesses_v3")
        reasons = ask("CurrentClocksThrottleReasons", "CurrentClocksEventReasons")
        ecc = ask("EccMode") or (None, None)
        limits = ask("PowerManagementLimitConstraints") or (None, None)
        violations = {
            cause: violation.violationTime / 1e9
            for cause, policy in _VIOLATIONS.items()
            if (violation := ask("ViolationStatus", of=(policy,))) is not None
        }
        return Die(
            nvml_index=index,
            name=ask("Name"),
            uuid=ask("UUID"),
            serial=ask("Serial"),
            pci_bus_id=_map(lambda pci: _pci_address(pci.busId), ask("PciInfo")),
            board_id=number("BoardId"),
            multi_gpu_board=flag("MultiGpuBoard"),
            compute_capability=_map(tuple, ask("CudaComputeCapability")),
            memory_total_bytes=_map(lambda m: int(m.total), memory),
            memory_used_bytes=_map(lambda m: int(m.used), memory),
            graphics_clock_mhz=number("ClockInfo", of=(_GRAPHICS,)),
            graphics_clock_max_mhz=number("MaxClockInfo", of=(_GRAPHICS,)),
            graphics_clock_application_mhz=number("ApplicationsClock", of=(_GRAPHICS,)),
            graphics_clock_application_default_mhz=number(
                "DefaultApplicationsClock", of=(_GRAPHICS,)
            ),
            memory_clock_mhz=number("ClockInfo", of=(_MEMORY,)),
            memory_clock_max_mhz=number("MaxClockInfo", of=(_MEMORY,)),
            memory_clock_application_mhz=number("ApplicationsClock", of=(_MEMORY,)),
            auto_boost=_map(lambda now: bool(now[0]), ask("AutoBoostedClocksEnabled")),
            power_watts=watts("PowerUsage"),
            power_limit_watts=watts("EnforcedPowerLimit", "PowerManagementLimit"),
            power_limit_default_watts=watts("PowerManagementDefaultLimit"),
            power_limit_max_watts=_map(lambda milliwatts: milliwatts / 1000, limits[1]),
            temperature_celsius=number("Temperature", "TemperatureV", of=(0,)),
            temperature_slowdown_celsius=number(
                "TemperatureThreshold", of=(_SLOWDOWN,)
            ),
            temperature_shutdown_celsius=number(
                "TemperatureThreshold", of=(_SHUTDOWN,)
            ),
            utilization_percent=_map(lambda u: int(u.gpu), ask("UtilizationRates")),
            throttle_reasons=_map(_throttle_reasons, reasons),
            violation_seconds=violations or None,
            ecc_enabled=_map(bool, ecc[0]),
            ecc_enabled_after_reboot=_map(bool, ecc[1]),
            ecc_corrected_volatile=number("TotalEccErrors", of=(_CORRECTED, _VOLATILE)),
            ecc_uncorrected_volatile=number(
                "TotalEccErrors", of=(_UNCORRECTED, _VOLATILE)
            ),
            ecc_corrected_aggregate=number(
                "TotalEccErrors", of=(_CORRECTED, _AGGREGATE)
            ),
            ecc_uncorrected_aggregate=number(
                "TotalEccErrors", of=(_UNCORRECTED, _AGGREGATE)
            ),
            retired_pages_single_bit=retired(_SINGLE_BIT),
            retired_pages_double_bit=retired(_DOUBLE_BIT),
            retired_pages_pending=flag("RetiredPagesPendingStatus"),
            persistence_mode=flag("PersistenceMode"),
            pcie_generation=number("CurrPcieLinkGeneration"),
            pcie_generation_max=number("MaxPcieLinkGeneration"),
            pcie_width=number("CurrPcieLinkWidth"),
            pcie_width_max=number("MaxPcieLinkWidth"),
            pcie_replays=number("PcieReplayCounter"),
            cpu_affinity=_map(_processors, ask("CpuAffinity", of=(_AFFINITY_WORDS,))),
            processes=_map(
                lambda running: tuple(Process(p.pid, p.usedGpuMemory) for p in running),
                processes,
            ),
        )

    def _read_peers(self, indices: list[int]) -> tuple[tuple[int, int], ...] | None:
        """Returns the pairs that can read each other; `None` if one is unknown."""
        peers = []
        try:
            handles = {i: self._pynvml.nvmlDeviceGetHandleByIndex(i) for i in indices}
            for first, second in ((a, b) for a in indices for b in indices if a < b):
                pair = handles[first], handles[second]
                statuses = [
                    self._ask("nvmlDeviceGetP2PStatus", of=(*way, _PEERS_READ))
                    for way in (pair, pair[::-1])
                ]
                if None in statuses:
                    return None
                if statuses == [_PEERS_OK, _PEERS_OK]:
                    peers.append((first, second))
        except self._pynvml.NVMLError:
            return None
        return tuple(peers)

    def _ask(self, *names: str, of: tuple[Any, ...] = ()) -> Any:
        """Returns what the first of some functions that NVML has answers.

        `None` stands for whatever has no answer. Names that this NVML, or this
        pynvml, doesn't have are remembered.

        Raises:
          pynvml.NVMLError: If the die is lost.
        """
        for name in names:
            function = getattr(self._pynvml, name, None)
            if function is None:
                self._missing[name] = None
                continue
            try:
                return function(*of)
            except self._no_function:
                self._missing[name] = None
            except self._pynvml.NVMLError as error:
                if error.value == _GPU_IS_LOST:
                    raise
                return None
        return None


def to_json(reading: NVMLReading) -> str:
    """Returns a reading as text."""
    return json.dumps(dataclasses.asdict(reading))


def from_json(text: str) -> NVMLReading:
    """Returns the reading that `to_json` made text of.

    Raises:
      InvalidArgumentError: If it did not.
    """
    try:
        values = _tuples(json.loads(text))
        dies = tuple(
            Die(**{**die, "processes": _map(_as_processes, die["processes"])})
            for die in values.pop("dies")
        )
        return NVMLReading(dies=dies, **values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidArgumentError(
            "A reading of NVML is the JSON that python -m k80keras.machine.nvml "
            f"prints. Received: text={text[:80]!r} ({error!r})."
        ) from None


def _as_processes(values: tuple[dict[str, Any], ...]) -> tuple[Process, ...]:
    return tuple(Process(**process) for process in values)


def _tuples(value: Any) -> Any:
    """Returns the value with each list made a tuple, as dataclasses have them."""
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return value


def _map(function: Callable[[Any], _Result], value: Any) -> _Result | None:
    return None if value is None else function(value)


def _pci_address(bus_id: str) -> str:
    """Returns `"0000:05:00.0"` for NVML's `"00000000:05:00.0"`."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _throttle_reasons(mask: int) -> tuple[str, ...]:
    return tuple(
        reason for bit, reason in enumerate(_THROTTLE_REASONS) if mask >> bit & 1
    )


def _processors(words: Any) -> tuple[int, ...]:
    return tuple(
        64 * i + bit
        for i, word in enumerate(words)
        for bit in range(64)
        if word >> bit & 1
    )


if __name__ == "__main__":
    print(to_json(read()))
