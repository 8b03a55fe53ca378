"""Merges duplicate events of two sources: the driver's events through NVML, and its lines in the kernel log.

If both report an XID of one GPU within two seconds, the kernel log's report counts: it has every line and its details.
If NVML's was already published, the log's is published under the same id, as a better report of the same event.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_collectors.kmsg.classifier import FOLLOWS
from flyball_collectors.kmsg.collector import SLOT
from flyball_collectors.kmsg.fault import slot_of
from flyball_collectors.nvml.events.xid import FABRIC, VICTIMS
from flyball_contracts.records import Device, NodeEvent

SAME_NS = 2_000_000_000
FOLLOWS_WITHIN_NS = 10_000_000_000
_FIRST_SXID = 10_000


class _Seen(NamedTuple):
    event: NodeEvent
    by_kernel: bool


class EventMerger:
    """Merges the events of all collectors of one node; they keep their order."""

    def __init__(self) -> None:
        self._recent: list[_Seen] = []

    def settle(self, events: Sequence[NodeEvent], devices: Sequence[Device]) -> list[NodeEvent]:
        """Events to publish, with the ids of ``devices`` in place of slots, and causes of victims.

        A slot without a device stays: the GPU is not available, and the node's others are not affected.
        """
        if not events:
            return []
        slots = {slot_of(d.pci_address): d.id for d in devices if d.pci_address and d.parent is None}
        seen = [_placed(event, slots) for event in events]
        newest_ns = max(one.event.time_ns for one in seen)
        self._recent = [t for t in self._recent if abs(newest_ns - t.event.time_ns) <= FOLLOWS_WITHIN_NS + SAME_NS]
        lines = [one for one in (*self._recent, *seen) if one.by_kernel]
        settled: list[NodeEvent] = []
        for one in seen:
            if one.event.kind == "xid":
                if not one.by_kernel and any(_same(one.event, line.event) for line in lines):
                    continue
                one = one._replace(event=self._first_id(one))
                self._recent.append(one)
            settled.append(one.event)
        return [self._joined(event) for event in settled]

    def _first_id(self, one: _Seen) -> NodeEvent:
        event = one.event
        if one.by_kernel:
            for before in self._recent:
                if not before.by_kernel and _same(event, before.event):
                    return msgspec.structs.replace(event, id=before.event.id)
        return event

    def _joined(self, event: NodeEvent) -> NodeEvent:
        """The event; if it is a victim without a known cause, with the error that it follows."""
        if event.kind != "xid" or event.code not in VICTIMS or FOLLOWS in event.message:
            return event
        causes = [one.event for one in self._recent if _may_cause(one.event, event)]
        if not causes:
            return event
        cause = max(causes, key=lambda one: (one.device == event.device, one.time_ns))
        where = "" if cause.device == event.device else f" of {cause.device or 'a switch'}"
        message = f"{event.message}{FOLLOWS} {cause.code}{where}"
        return msgspec.structs.replace(event, severity="info", remedy="none", message=message)


def _placed(event: NodeEvent, slots: dict[str, str]) -> _Seen:
    if not event.device.startswith(SLOT):
        return _Seen(event, False)
    device = slots.get(event.device.removeprefix(SLOT), event.device)
    return _Seen(msgspec.structs.replace(event, device=device), True)


def _same(one: NodeEvent, other: NodeEvent) -> bool:
    return (one.device, one.code) == (other.device, other.code) and abs(one.time_ns - other.time_ns) <= SAME_NS


def _may_cause(cause: NodeEvent, victim: NodeEvent) -> bool:
    """Whether an earlier error, of the same GPU or of the fabric between GPUs, can be the victim's cause."""
    if cause.code is None or cause.code in VICTIMS or cause.severity == "info":
        return False
    near = cause.device == victim.device or cause.code in FABRIC or cause.code >= _FIRST_SXID
    # A cause is logged first, but the two come from different threads.
    return near and -SAME_NS <= victim.time_ns - cause.time_ns <= FOLLOWS_WITHIN_NS
