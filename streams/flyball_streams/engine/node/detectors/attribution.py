"""Attributes error events to the hardware, which moves work off the device, or to the program, which does not."""

from typing import Any, Literal, NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent
from flyball_contracts.xids import xid_of

MOVES = frozenset({"reset_gpu", "drain", "reboot"})
AVOIDS = frozenset({"no_new_work", "unknown"})
REPEATS = 3
"""If this many workloads end with the same error on one device within a day, and on no other, the device is at fault.

Two may be one faulty program that was submitted again.
"""
DAY_NS = 86_400 * NS_PER_S
AGAIN_NS = 600 * NS_PER_S
"""An owner is notified of a code once in this time, on however many GPUs: one error shows on all ranks of a job."""
Verdict = Literal["move", "avoid", "owner", "nothing"]


class OwnerNotice(NamedTuple):
    """A notice to the owner of a workload: the first event of a code in a tick, and the number of devices with it."""

    workload: str
    event: NodeEvent
    devices: int


class FaultAttribution:
    """Keeps which workloads failed where.

    ``failures[device][code]`` maps workloads to their last failure, ns; ``notified`` maps (workload, code) to the last
    notice, ns; ``pending`` are the notices of the open tick.
    """

    def __init__(self) -> None:
        self.failures: dict[str, dict[int, dict[str, int]]] = {}
        self.notified: dict[tuple[str, int], int] = {}
        self.pending: dict[tuple[str, int], OwnerNotice] = {}

    def attribute(self, device: str, event: NodeEvent, workload: str) -> Verdict:
        """Verdict on an event of a device; ``workload`` is the one on the device, empty for none."""
        code = event.code
        if event.kind != "xid" or code is None:
            return _by_remedy(event)
        fault = xid_of(code).fault
        if fault != "application" and not (fault == "memory" and event.remedy == "restart_app"):
            return _by_remedy(event)
        if event.remedy == "none" or not workload:
            return "nothing"
        workloads = self.failures.setdefault(device, {}).setdefault(code, {})
        workloads[workload] = event.time_ns
        for old in [w for w, time_ns in workloads.items() if event.time_ns - time_ns > DAY_NS]:
            del workloads[old]
        if len(workloads) >= REPEATS and not self._fail_elsewhere(device, event, workloads):
            return "move"
        key = workload, code
        notice, before = self.pending.get(key), self.notified.get(key)
        if notice is not None:
            self.pending[key] = notice._replace(devices=notice.devices + 1)
        elif before is None or not 0 <= event.time_ns - before < AGAIN_NS:
            self.pending[key], self.notified[key] = OwnerNotice(workload, event, 1), event.time_ns
        return "owner"

    def _fail_elsewhere(self, device: str, event: NodeEvent, workloads: dict[str, int]) -> bool:
        """Whether one of these workloads has ended with this error on another device in the last day."""
        others = (codes.get(event.code or 0, {}) for other, codes in self.failures.items() if other != device)
        return any(
            name in workloads and event.time_ns - time_ns <= DAY_NS
            for other in others
            for name, time_ns in other.items()
        )

    def take_notices(self) -> list[OwnerNotice]:
        """Remove and return the notices of this tick, in a fixed order."""
        notices, self.pending = [self.pending[key] for key in sorted(self.pending)], {}
        if notices:
            now = max(t.event.time_ns for t in notices)
            self.notified = {key: t for key, t in self.notified.items() if now - t < AGAIN_NS}
        return notices

    def forget(self, device: str) -> None:
        """Drop the failures of a device: it was reset, or is gone."""
        self.failures.pop(device, None)

    def state(self) -> dict[str, Any]:
        """State for a snapshot, between ticks."""
        return {"failures": self.failures, "notified": self.notified}

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.failures, self.notified = dict(state["failures"]), dict(state["notified"])


def _by_remedy(event: NodeEvent) -> Verdict:
    if event.remedy in MOVES:
        return "move"
    return "avoid" if event.remedy in AVOIDS else "nothing"
