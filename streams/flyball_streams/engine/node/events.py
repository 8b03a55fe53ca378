"""Events of a cell's nodes that wait for their tick."""

from collections.abc import Mapping
from typing import Any

from flyball_contracts.records import Device, Inventory, NodeEvent, Tick
from flyball_streams.engine.node.detector import DeviceEvent
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.packing import pack_struct, unpack_struct

MAX_PENDING = 4096
"""Most events that wait for their tick: their clock runs ahead, or they are read before the frames of a backlog."""


class PendingEvents:
    """Events of one cell; each counts from its tick on."""

    def __init__(self) -> None:
        self._events: list[NodeEvent] = []

    def note(self, event: NodeEvent) -> None:
        """Add an event of one of the cell's nodes."""
        self._events.append(event)

    def take(
        self, tick: Tick, known: Mapping[str, Inventory], table: SubjectTable, tenancy: Tenancy
    ) -> list[DeviceEvent]:
        """Remove and return the events of known nodes up to a tick, in order.

        A worker with a backlog may have read later events. If too many of these wait, the first of them count now.
        """
        due = [e for e in self._events if e.time_ns < tick.end_ns and e.node in known]
        later = [e for e in self._events if e.time_ns >= tick.end_ns or e.node not in known]
        more = max(0, len(later) - MAX_PENDING)
        due += [event for event in later[:more] if event.node in known]
        self._events = later[more:]
        divided = {node: _divided(known[node].devices) for node in {event.node for event in due}}

        def holder(device: str) -> str:
            return tenancy.replica_of_slot.get(table.slots.get(device, -1), ("", ""))[0]

        taken: list[DeviceEvent] = []
        for event in sorted(due, key=lambda e: (e.time_ns, e.id)):
            devices = [event.device]
            if not event.device or event.device in divided[event.node]:
                devices = _affected(event, known[event.node].devices)
            taken.append(DeviceEvent(event, {device: holder(device) for device in devices}))
        return taken

    def state(self) -> list[bytes]:
        """State for a snapshot."""
        return [pack_struct(event) for event in self._events]

    def load(self, state: list[Any]) -> None:
        """Replace the state by that of a snapshot."""
        self._events = [unpack_struct(raw, NodeEvent) for raw in state]


def _divided(devices: tuple[Device, ...]) -> frozenset[str]:
    """GPUs that are divided into MIG instances."""
    return frozenset(d.parent for d in devices if d.parent is not None)


def _affected(event: NodeEvent, devices: tuple[Device, ...]) -> list[str]:
    """Devices that an event affects: all of the node, or one device with its MIG instances."""
    if not event.device:
        return [d.id for d in devices]
    return [event.device, *(d.id for d in devices if d.parent == event.device)]
