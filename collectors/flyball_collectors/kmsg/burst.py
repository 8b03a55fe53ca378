"""Counts equal faults between two ticks: a single broken GPU can write thousands of lines a second."""

import threading
from typing import NamedTuple

from flyball_collectors.kmsg.fault import Fault

_MOST = 256  # kinds of fault kept apart between two ticks
MOST_NAMES = 64  # of places or processes that a tally remembers


class Tally(NamedTuple):
    """Faults reported as one: the first of them, its time, their number, places and processes."""

    first: Fault
    first_ns: int
    times: int
    places: frozenset[str]
    processes: frozenset[str]
    action: int | None
    cause: int | None


class Burst:
    """Counts faults from one thread until another drains them; its memory is bounded, its counts are exact.

    Faults beyond :data:`_MOST` kinds are counted together by kind of error, without the affected process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[Fault, Tally] = {}

    def add(self, fault: Fault, now_ns: int) -> None:
        """Count one fault."""
        with self._lock:
            key = Fault(fault.kind, fault.pci, fault.code, fault.fatal, fault.subject, link=fault.link)
            if key not in self._tallies and len(self._tallies) >= _MOST:
                key = Fault(fault.kind, code=fault.code, fatal=fault.fatal)
            old = self._tallies.get(key)
            if old is None:
                old = Tally(fault, now_ns, 0, frozenset(), frozenset(), None, None)
            elif old.times == 0:  # a repetition came before the fault that it repeats
                old = old._replace(first=fault)
            self._tallies[key] = Tally(
                old.first,
                old.first_ns,
                old.times + fault.times,
                _with(old.places, fault.place),
                _with(old.processes, fault.process),
                old.action if fault.action is None else fault.action,
                old.cause if fault.cause is None else fault.cause,
            )

    def drain(self) -> list[Tally]:
        """Counts since the last call, the earliest first; a repetition alone counts once."""
        with self._lock:
            tallies, self._tallies = self._tallies, {}
        return [tally._replace(times=max(tally.times, 1)) for tally in tallies.values()]


def _with(names: frozenset[str], name: str) -> frozenset[str]:
    return names if not name or name in names or len(names) >= MOST_NAMES else names | {name}
