"""Google Cloud: the metadata server of Compute Engine.

A spot machine has 30 s from its notice. Maintenance is announced 60 minutes ahead on machines with GPUs, and 60 s on
others, provided that a client has requested it since the last one. See "About VM metadata" and "Query the metadata
server for maintenance event notices" in the documentation of Compute Engine.
"""

from collections.abc import Iterator

from flyball_collectors.base import Place
from flyball_collectors.cloud.base import MetadataError, Notice
from flyball_collectors.cloud.http import MetadataServer

_INSTANCE = "/computeMetadata/v1/instance/"
_FLAVOR = {"Metadata-Flavor": "Google"}


class Gcp:
    """A machine of Compute Engine; see :class:`flyball_collectors.cloud.base.Cloud`.

    Keys are requested one by one: the whole tree would hold the machine's secrets, too.
    """

    name = "gcp"

    def __init__(self, server: MetadataServer) -> None:
        self._server = server

    def place(self) -> Place:
        """Region, zone, type, and whether it is a spot machine."""
        zone = self._text("zone").rpartition("/")[2]
        spot = self._text("scheduling/preemptible") == "TRUE"
        return Place(
            provider="gcp",
            region=zone.rpartition("-")[0],
            availability_zone=zone,
            instance_type=self._text("machine-type").rpartition("/")[2],
            capacity_type="spot" if spot else "on_demand",
        )

    def notices(self) -> Iterator[Notice]:
        """Preemption of a spot machine, and maintenance of its host."""
        if self._text("preempted") == "TRUE":
            yield Notice("preempted", "spot_notice", "Google takes this spot machine back within 30 s")
        maintenance = self._text("maintenance-event")
        if maintenance.startswith("TERMINATE"):
            message = (
                "Google will stop this machine to maintain its host, within 60 min if it has GPUs, else within 60 s"
            )
            yield Notice(maintenance, "maintenance_notice", message)
        elif maintenance not in ("", "NONE"):
            message = f"Google is about to move this machine to another host: {maintenance}"
            yield Notice(maintenance, "maintenance_notice", message, "warning", "notify")

    def _text(self, key: str) -> str:
        path = _INSTANCE + key
        answer = self._server.request(path, _FLAVOR)
        if answer.headers.get("metadata-flavor") != "Google":
            raise MetadataError(f"{self._server.address}{path}: the answer is not of Google's metadata server")
        return self._server.text(answer, path)
