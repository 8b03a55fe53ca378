"""Electricity Maps v3: average life-cycle intensity of a zone.

See https://app.electricitymaps.com/developer-hub/api.
"""

import msgspec

from flyball_collectors.feeds.answers import decode_json, time_ns
from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.client import Client
from flyball_collectors.feeds.curve import Cut, Point, Shape, cut_curve, smallest_step_s
from flyball_collectors.feeds.parameters import ElectricityMapsParameters
from flyball_contracts.records import Signal

HOUR_S = 3600.0


class _Slot(msgspec.Struct, rename="camel"):
    carbon_intensity: float | None
    datetime: str


class _Forecast(msgspec.Struct, rename="camel"):
    zone: str
    forecast: list[_Slot]
    updated_at: str


class _Latest(msgspec.Struct, rename="camel"):
    zone: str
    carbon_intensity: float | None
    datetime: str
    updated_at: str
    emission_factor_type: str = "lifecycle"
    is_estimated: bool = False


class ElectricityMaps:
    """The forecast or the latest hour of a zone; see :class:`flyball_collectors.feeds.base.Feed`."""

    def __init__(self, settings: ElectricityMapsParameters, client: Client, token: str) -> None:
        self.name = f"electricity_maps/{settings.zone}"
        self.left_out = 0
        self._settings = settings
        self._region = settings.region or settings.zone
        self._shape = Shape(settings.zone, "electricity_maps")
        self._client = client
        self._headers = {"auth-token": token}

    def fetch(self, now_ns: int) -> list[Signal]:
        """One curve, issued when the provider says; raises :class:`FeedError`."""
        path = f"/v3/carbon-intensity/{self._settings.endpoint}"
        latest = self._settings.endpoint == "latest"
        query = {"zone": self._region}
        if not latest:
            query["horizonHours"] = str(self._settings.horizon_hours)
        body = self._client.get(path, query, self._headers, now_ns)
        where = f"{self._client.where(path)} of {self._region}"
        return [self._latest(body, where, now_ns) if latest else self._forecast(body, where, now_ns)]

    def _forecast(self, body: bytes, where: str, now_ns: int) -> Signal:
        answer = decode_json(body, _Forecast, where)
        self._check_zone(answer.zone, where)
        points = [
            Point(time_ns(slot.datetime, f"{where}: $.forecast[{i}].datetime"), slot.carbon_intensity)
            for i, slot in enumerate(answer.forecast)
        ]
        step_s = smallest_step_s(p.time_ns for p in points) or HOUR_S
        issued_ns = time_ns(answer.updated_at, f"{where}: $.updatedAt")
        cut = cut_curve(points, self._shape, step_s=step_s, published_ns=issued_ns, now_ns=now_ns, where=where)
        return self._count(cut)

    def _latest(self, body: bytes, where: str, now_ns: int) -> Signal:
        answer = decode_json(body, _Latest, where)
        self._check_zone(answer.zone, where)
        shape = self._shape._replace(forecast=False, lifecycle=answer.emission_factor_type == "lifecycle")
        points = [Point(time_ns(answer.datetime, f"{where}: $.datetime"), answer.carbon_intensity)]
        issued_ns = time_ns(answer.updated_at, f"{where}: $.updatedAt")
        cut = cut_curve(points, shape, step_s=HOUR_S, published_ns=issued_ns, now_ns=now_ns, where=where)
        return msgspec.structs.replace(self._count(cut), estimated=answer.is_estimated)

    def _count(self, cut: Cut) -> Signal:
        self.left_out += cut.left_out
        return cut.signal

    def _check_zone(self, zone: str, where: str) -> None:
        if zone != self._region:
            raise FeedError(f"{where}: $.zone: the answer is of {zone[:40]!r}; check region", lasting=True)
