"""One event for what two witnesses saw: the driver's own events through NVML, and its lines in the kernel log.

Where both tell of an XID of one GPU within two seconds, the kernel log's telling stands: it counts every line and
knows the details. Should NVML's have gone out before, the log's goes out under the same id, as a better telling of
the same event.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_collectors.kmsg.collector import SLOT
from flyball_collectors.kmsg.fault import slot_of
from flyball_collectors.kmsg.verdicts import FOLLOWS
from flyball_collectors.nvml.events.xid import FABRIC, VICTIMS
from flyball_contracts.records import Device, NodeEvent

SAME_NS = 2_000_000_000
FOLLOWS_WITHIN_NS = 10_000_000_000
_FIRST_SXID = 10_000


class _Told(NamedTuple):
    event: NodeEvent
    by_kernel: bool


class Witness:
    """Settles the events of all collectors of one node; they keep their order."""

    def __init__(self) -> None:
        self._told: list[_Told] = []

    def settle(self, events: Sequence[NodeEvent], devices: Sequence[Device]) -> list[NodeEvent]:
        """Events to tell, with the ids of ``devices`` in the place of slots, and victims joined to their causes.

        A slot that no device has stays: the GPU is not to be had, but the node's others are not meant.
        """
        if not events:
            return []
        slots = {slot_of(d.pci_address): d.id for d in devices if d.pci_address and d.parent is None}
        seen = [_placed(event, slots) for event in events]
        newest_ns = max(told.event.time_ns for told in seen)
        self._told = [t for t in self._told if abs(newest_ns - t.event.time_ns) <= FOLLOWS_WITHIN_NS + SAME_NS]
        lines = [told for told in (*self._told, *seen) if told.by_kernel]
        settled: list[NodeEvent] = []
        for told in seen:
            if told.event.kind == "xid":
                if not told.by_kernel and any(_same(told.event, line.event) for line in lines):
                    continue
                told = told._replace(event=self._first_id(told))
                self._told.append(told)
            settled.append(told.event)
        return [self._joined(event) for event in settled]

    def _first_id(self, told: _Told) -> NodeEvent:
        event = told.event
        if told.by_kernel:
            for before in self._told:
                if not before.by_kernel and _same(event, before.event):
                    return msgspec.structs.replace(event, id=before.event.id)
        return event

    def _joined(self, event: NodeEvent) -> NodeEvent:
        """The event, or for a victim without a known cause, what it follows from."""
        if event.kind != "xid" or event.code not in VICTIMS or FOLLOWS in event.message:
            return event
        causes = [told.event for told in self._told if _may_cause(told.event, event)]
        if not causes:
            return event
        cause = max(causes, key=lambda one: (one.device == event.device, one.time_ns))
        where = "" if cause.device == event.device else f" of {cause.device or 'a switch'}"
        message = f"{event.message}{FOLLOWS} {cause.code}{where}"
        return msgspec.structs.replace(event, severity="info", remedy="none", message=message)


def _placed(event: NodeEvent, slots: dict[str, str]) -> _Told:
    if not event.device.startswith(SLOT):
        return _Told(event, False)
    device = slots.get(event.device.removeprefix(SLOT), event.device)
    return _Told(msgspec.structs.replace(event, device=device), True)


def _same(one: NodeEvent, other: NodeEvent) -> bool:
    return (one.device, one.code) == (other.device, other.code) and abs(one.time_ns - other.time_ns) <= SAME_NS


def _may_cause(cause: NodeEvent, victim: NodeEvent) -> bool:
    """Whether an earlier error, of the same GPU or of the fabric between the GPUs, can be what struck the victim."""
    if cause.code is None or cause.code in VICTIMS or cause.severity == "info":
        return False
    near = cause.device == victim.device or cause.code in FABRIC or cause.code >= _FIRST_SXID
    # A cause is logged first, but the two come from different threads.
    return near and -SAME_NS <= victim.time_ns - cause.time_ns <= FOLLOWS_WITHIN_NS
