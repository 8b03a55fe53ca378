"""Events of clocks lowered by heat or the power brake: start and end of each slowdown."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import EventKind, node_event

# Clocks event reasons of nvml.h. The software power cap is none of them: it is how a GPU at full load runs.
HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x08, 0x20, 0x40, 0x80
_BITS: Mapping[EventKind, Mapping[int, str]] = {
    "throttle": {
        SW_THERMAL: "by the driver, for heat",
        HW_THERMAL: "by hardware, for heat",
        HW_SLOWDOWN: "by hardware",
    },
    "power_brake": {POWER_BRAKE: "by the power brake of the host"},
}
_ANY = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE
_QUIET_NS = 10 * NS_PER_S
_LONGEST_QUIET_NS = 640 * NS_PER_S


class Slowdown(NamedTuple):
    """One slowdown: time since its start, time slowed, time since it was last slow, and how much of that ends it."""

    whole_ns: int
    slow_ns: int
    quiet_ns: int
    needed_ns: int
    over: bool


class Slowdowns:
    """Follows the reasons of each device, tick by tick.

    A slowdown starts with the first tick that has it, and ends after 10 s without; a repeated one must be absent for
    twice as long the next time, up to 640 s. So however clocks flap, a device has few events.
    """

    def __init__(self) -> None:
        self._spells: dict[tuple[str, EventKind], Slowdown] = {}

    def note(self, node: str, device: str, reasons: int | None, now_ns: int, period_ns: int) -> list[NodeEvent]:
        """Events of one device at one tick; ``reasons`` are nvml.h's bits, ``None`` if unknown."""
        if reasons is None or not (reasons & _ANY or self._spells):
            return []
        return list(self._note(node, device, reasons, now_ns, period_ns))

    def keep(self, devices: set[str]) -> None:
        """Drop devices that are gone."""
        self._spells = {key: spell for key, spell in self._spells.items() if key[0] in devices}

    def _note(self, node: str, device: str, reasons: int, now_ns: int, period_ns: int) -> Iterator[NodeEvent]:
        for kind, bits in _BITS.items():
            key = device, kind
            why = [about for bit, about in bits.items() if reasons & bit]
            if reasons & (HW_THERMAL | POWER_BRAKE) and reasons & HW_SLOWDOWN and kind == "throttle":
                why.remove(bits[HW_SLOWDOWN])  # that bit goes with the two others, which say more
            spell = self._spells.get(key)
            if why and (spell is None or spell.over):
                again = _QUIET_NS if spell is None else min(2 * spell.needed_ns, _LONGEST_QUIET_NS)
                self._spells[key] = Slowdown(period_ns, period_ns, 0, again, over=False)
                message = f"clocks are lowered {' and '.join(why)}"
                yield node_event(
                    node, now_ns, kind, severity="warning", device=device, remedy="notify", message=message
                )
            elif why and spell is not None:
                self._spells[key] = spell._replace(
                    whole_ns=spell.whole_ns + period_ns, slow_ns=spell.slow_ns + period_ns, quiet_ns=0
                )
            elif spell is not None:
                quiet = spell._replace(whole_ns=spell.whole_ns + period_ns, quiet_ns=spell.quiet_ns + period_ns)
                self._spells[key] = quiet
                if not spell.over and quiet.quiet_ns >= quiet.needed_ns:
                    self._spells[key] = quiet._replace(over=True)
                    slow_s, whole_s = quiet.slow_ns / NS_PER_S, (quiet.whole_ns - quiet.quiet_ns) / NS_PER_S
                    message = f"clocks are no longer lowered; they were for {slow_s:.4g} s within {whole_s:.4g} s"
                    yield node_event(node, now_ns, kind, device=device, message=message)
                elif spell.over and quiet.quiet_ns >= 2 * _LONGEST_QUIET_NS:
                    del self._spells[key]
