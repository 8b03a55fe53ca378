"""Azure: the instance metadata service and its scheduled events.

A spot machine has at least 30 s from its notice. The first request for events enables them, which may take two minutes;
they are disabled again after a day without a request. See "Azure Instance Metadata Service" and "Scheduled Events for
Linux VMs" in the documentation of Azure.
"""

from collections.abc import Iterator

import msgspec

from flyball_collectors.base import Place
from flyball_collectors.cloud.base import Notice
from flyball_collectors.cloud.http import MetadataServer

_COMPUTE = "/metadata/instance/compute?api-version=2021-02-01&format=json"
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_HEADERS = {"Metadata": "true"}


class _Compute(msgspec.Struct, rename="camel"):
    location: str
    vm_size: str
    name: str = ""
    zone: str = ""
    priority: str = ""


class _Event(msgspec.Struct, rename="pascal"):
    event_id: str
    event_type: str
    resources: list[str] = []
    not_before: str = ""
    description: str = ""


class _Document(msgspec.Struct, rename="pascal"):
    events: list[_Event] = []


class Azure:
    """A virtual machine of Azure; see :class:`flyball_collectors.cloud.base.Cloud`."""

    name = "azure"

    def __init__(self, server: MetadataServer) -> None:
        self._server = server
        self._machine: str | None = None

    def place(self) -> Place:
        """Location, zone, size, and whether it is a spot machine."""
        compute = self._compute()
        zone = f"{compute.location}-{compute.zone}" if compute.zone else ""
        return Place(
            provider="azure",
            region=compute.location,
            availability_zone=zone,
            instance_type=compute.vm_size,
            capacity_type="spot" if compute.priority in ("Spot", "Low") else "on_demand",
        )

    def notices(self) -> Iterator[Notice]:
        """Events of this machine; the document contains those of its whole set."""
        if self._machine is None:
            self._machine = self._compute().name
        document = self._server.decode(self._server.request(_EVENTS, _HEADERS), _EVENTS, _Document)
        for event in document.events:
            if not event.resources or self._machine.lower() in (name.lower() for name in event.resources):
                yield _notice(event)

    def _compute(self) -> _Compute:
        return self._server.decode(self._server.request(_COMPUTE, _HEADERS), _COMPUTE, _Compute)


def _notice(event: _Event) -> Notice:
    when = f"not before {event.not_before}" if event.not_before else "now"
    why = f": {event.description}" if event.description else ""
    message = f"Azure plans {event.event_type} of this machine, {when}{why}"
    if event.event_type == "Preempt":
        return Notice(event.event_id, "spot_notice", message)
    if event.event_type == "Freeze":  # a pause of seconds
        return Notice(event.event_id, "maintenance_notice", message, "warning", "notify")
    return Notice(event.event_id, "maintenance_notice", message)
