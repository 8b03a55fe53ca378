"""AWS: the instance metadata service, version 2 only (a token first, by PUT).

Spot notices come two minutes ahead, as a rule, and AWS advises to look every five seconds. See "Spot Instance
interruption notices" and "EC2 instance rebalance recommendations" in the user guide of EC2.
"""

from collections.abc import Iterator

import msgspec

from flyball_collectors.base import Place
from flyball_collectors.cloud.base import MetadataError, Notice
from flyball_collectors.cloud.http import Answer, MetadataServer
from flyball_contracts.records.inventory import CapacityType

TOKEN_S = 21_600  # six hours, the longest that is given
_TOKEN = "/latest/api/token"
DATA = "/latest/meta-data/"
_CAPACITY: dict[str, CapacityType] = {
    "spot": "spot", "on-demand": "on_demand", "scheduled": "reserved", "capacity-block": "reserved",
}  # fmt: skip


class _Action(msgspec.Struct):
    action: str
    time: str = ""


class _Rebalance(msgspec.Struct, rename="camel"):
    notice_time: str


class _Maintenance(msgspec.Struct, rename="pascal"):
    event_id: str
    code: str
    not_before: str = ""
    description: str = ""
    state: str = "active"


class Aws:
    """A machine of EC2; see :class:`flyball_collectors.cloud.base.Cloud`."""

    name = "aws"

    def __init__(self, server: MetadataServer) -> None:
        self._server = server
        self._token = ""

    def place(self) -> Place:
        """Region, zone, type, and capacity type."""
        return Place(
            provider="aws",
            region=self._text("placement/region"),
            availability_zone=self._text("placement/availability-zone"),
            instance_type=self._text("instance-type"),
            capacity_type=_CAPACITY.get(self._text("instance-life-cycle"), "on_demand"),
        )

    def notices(self) -> Iterator[Notice]:
        """Spot interruption, rebalance recommendation, and scheduled maintenance."""
        yield from self._interruption()
        yield from self._rebalance()
        yield from self._maintenance()

    def request(self, path: str) -> Answer:
        """Response with a valid token; a rejected token is replaced once. Raises :class:`MetadataError`."""
        for _ in range(2):
            if not self._token:
                self._token = self._new_token()
            answer = self._server.request(path, {"X-aws-ec2-metadata-token": self._token})
            if answer.status != 401:
                return answer
            self._token = ""
        raise MetadataError(f"{self._server.address}{path}: status 401, though the token is fresh")

    def _interruption(self) -> Iterator[Notice]:
        path = f"{DATA}spot/instance-action"
        answer = self.request(path)
        if answer.status == 404:
            return
        notice = self._server.decode(answer, path, _Action)
        when = f"at {notice.time}" if notice.time else "now"
        action = notice.action
        yield Notice(f"spot {action} {notice.time}", "spot_notice", f"AWS will {action} this machine {when}")

    def _rebalance(self) -> Iterator[Notice]:
        path = f"{DATA}events/recommendations/rebalance"
        answer = self.request(path)
        if answer.status == 404:
            return
        notice = self._server.decode(answer, path, _Rebalance)
        message = f"AWS advises since {notice.notice_time} to leave this machine: it is likely to be taken back"
        yield Notice(f"rebalance {notice.notice_time}", "rebalance_notice", message, "warning")

    def _maintenance(self) -> Iterator[Notice]:
        path = f"{DATA}events/maintenance/scheduled"
        answer = self.request(path)
        if answer.status == 404:
            return
        for one in self._server.decode(answer, path, list[_Maintenance]):
            if one.state == "active":
                when = f"not before {one.not_before}" if one.not_before else "now"
                message = f"AWS plans {one.code} of this machine, {when}: {one.description}"
                key = f"maintenance {one.event_id} {one.not_before}"
                yield Notice(key, "maintenance_notice", message, "warning")

    def _text(self, key: str) -> str:
        return self._server.text(self.request(DATA + key), DATA + key)

    def _new_token(self) -> str:
        try:
            answer = self._server.request(_TOKEN, {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}, "PUT")
        except MetadataError as error:
            advice = "in a container raise the instance's http-put-response-hop-limit to 2, or use the host's network"
            raise MetadataError(f"{error}; {advice}") from error
        if answer.status == 403:
            raise MetadataError(f"{self._server.address}{_TOKEN}: status 403; the instance's metadata is switched off")
        token = self._server.text(answer, _TOKEN)
        if not token or not token.isascii():
            raise MetadataError(f"{self._server.address}{_TOKEN}: no token")
        return token
