"""Energy of CPU packages and memory from RAPL, through ``/sys/class/powercap``."""

from pathlib import Path
from typing import NamedTuple

from flyball_collectors.base import Values
from flyball_collectors.kernel import numbers, text_of

_KINDS = {"package": "cpu", "dram": "memory"}


class Zone(NamedTuple):
    """One counted RAPL zone: its name, ``cpu`` or ``memory``, its counter, and its range."""

    name: str
    kind: str
    counter: Path
    range_uj: int


def find_zones(root: Path) -> list[Zone]:
    """Packages and their memory; other zones are parts of these.

    A package includes its ``core`` and ``uncore``, ``psys`` includes everything, and ``intel-rapl-mmio`` is another
    interface to the same package: adding them would count energy twice.
    """
    try:
        folders = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    except OSError:
        return []
    zones: list[Zone] = []
    for folder in folders:
        name = text_of(folder / "name").strip()
        kind = _KINDS.get(name.partition("-")[0])
        range_uj = numbers(text_of(folder / "max_energy_range_uj").split())
        if kind is not None:
            zones.append(Zone(name, kind, folder / "energy_uj", range_uj[0] if range_uj else 0))
    return zones


class EnergyMeter:
    """Accumulates the energy of the zones that existed when it was made.

    A counter wraps at its range, every few minutes on a busy host. One that fell by less than half its range was reset
    instead, and the energy used meanwhile is unknown.
    """

    def __init__(self, root: Path) -> None:
        self.zones = find_zones(root)
        self._last: dict[Path, int] = {}
        self._total_uj: dict[str, int] = {}

    def read(self) -> Values:
        """Energy in joules since the meter was made, by kind; a kind with an unreadable zone is left out."""
        step_uj: dict[str, int | None] = {}
        for zone in self.zones:
            before = step_uj.get(zone.kind, 0)
            step = self._step(zone)
            step_uj[zone.kind] = None if before is None or step is None else before + step
        values: dict[str, float] = {}
        for kind, step in step_uj.items():
            if step is not None:
                self._total_uj[kind] = self._total_uj.get(kind, 0) + step
                values[f"hw.energy{{type={kind}}}"] = self._total_uj[kind] / 1e6
        return values

    def _step(self, zone: Zone) -> int | None:
        """Increase of one zone, 0 on its first read, ``None`` where it is unknown."""
        now = numbers(text_of(zone.counter).split())
        if not now:
            self._last.pop(zone.counter, None)
            return None
        before = self._last.get(zone.counter)
        self._last[zone.counter] = now[0]
        if before is None:
            return 0
        step = now[0] - before
        if step >= 0:
            return step
        return step + zone.range_uj if -2 * step > zone.range_uj > 0 else None
