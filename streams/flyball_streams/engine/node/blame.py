"""Whose fault an event is: the machine's, which costs a device its work, or the program's, which costs it nothing."""

from typing import Any, Literal, NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent
from flyball_contracts.xids import xid_of

MOVES = frozenset({"reset_gpu", "drain", "reboot"})
AVOIDS = frozenset({"no_new_work", "unknown"})
REPEATS = 2
"""Different workloads that end with the same error on one device within a day: then it is the device."""
DAY_NS = 86_400 * NS_PER_S
AGAIN_NS = 600 * NS_PER_S
"""An owner is told of one code once in so long, on however many GPUs it comes: one error floods all ranks of a job."""
Verdict = Literal["move", "avoid", "owner", "nothing"]


class Told(NamedTuple):
    """What the owner of a workload is told: the first event of a code, and on how many devices it came in the tick."""

    workload: str
    event: NodeEvent
    devices: int


class Blame:
    """Remembers which workloads failed where: ``struck[device][code]`` is when each workload did last, ns."""

    def __init__(self) -> None:
        self.struck: dict[str, dict[int, dict[str, int]]] = {}
        self.owned: dict[tuple[str, int], int] = {}
        self.new: dict[tuple[str, int], Told] = {}

    def judge(self, device: str, event: NodeEvent, workload: str) -> Verdict:
        """What an event that strikes a device, held by a workload or by none, asks for."""
        code = event.code
        if event.kind != "xid" or code is None:
            return _by_remedy(event)
        fault = xid_of(code).fault
        if fault != "application" and not (fault == "memory" and event.remedy == "restart_app"):
            return _by_remedy(event)
        if event.remedy == "none" or not workload:
            return "nothing"
        held = self.struck.setdefault(device, {}).setdefault(code, {})
        held[workload] = event.time_ns
        for old in [w for w, time_ns in held.items() if event.time_ns - time_ns > DAY_NS]:
            del held[old]
        if len(held) >= REPEATS:
            return "move"
        key = workload, code
        first, before = self.new.get(key), self.owned.get(key)
        if first is not None:
            self.new[key] = first._replace(devices=first.devices + 1)
        elif before is None or not 0 <= event.time_ns - before < AGAIN_NS:
            self.new[key], self.owned[key] = Told(workload, event, 1), event.time_ns
        return "owner"

    def take(self) -> list[Told]:
        """Owners to be told of this tick's events, in a fixed order."""
        told, self.new = [self.new[key] for key in sorted(self.new)], {}
        if told:
            now = max(t.event.time_ns for t in told)
            self.owned = {key: t for key, t in self.owned.items() if now - t < AGAIN_NS}
        return told

    def forget(self, device: str) -> None:
        """Drop what was held against a device: it was reset, or is gone."""
        self.struck.pop(device, None)

    def state(self) -> dict[str, Any]:
        """State for a snapshot, between ticks."""
        return {"struck": self.struck, "owned": self.owned}

    def load(self, state: dict[str, Any]) -> None:
        """Take on the state of a snapshot."""
        self.struck, self.owned = dict(state["struck"]), dict(state["owned"])


def _by_remedy(event: NodeEvent) -> Verdict:
    if event.remedy in MOVES:
        return "move"
    return "avoid" if event.remedy in AVOIDS else "nothing"
