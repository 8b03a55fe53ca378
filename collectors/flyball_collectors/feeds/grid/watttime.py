"""WattTime v3: marginal operating emissions rate (MOER) of a region.

See https://docs.watttime.org.

Marginal and of combustion only. Log-in with name and password gives a bearer token for half an hour; it is
used until it is refused.
"""

import base64

import msgspec

from flyball_collectors.feeds.answers import decode_json, time_ns
from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.client import Client, Unauthorized
from flyball_collectors.feeds.curve import Point, Shape, cut_curve
from flyball_collectors.feeds.parameters import WattTimeParameters
from flyball_contracts.records import Signal

G_PER_KWH_OF_LB_PER_MWH = 0.45359237  # the international pound is 453.59237 g
SIGNAL = "co2_moer"
UNITS = "lbs_co2_per_mwh"


class _Login(msgspec.Struct):
    token: str


class _Row(msgspec.Struct):
    point_time: str
    value: float | None


class _Meta(msgspec.Struct):
    region: str
    signal_type: str
    units: str
    data_point_period_seconds: float
    generated_at: str


class _Answer(msgspec.Struct):
    data: list[_Row]
    meta: _Meta


class WattTime:
    """The MOER forecast of a region; see :class:`flyball_collectors.feeds.base.Feed`."""

    def __init__(self, settings: WattTimeParameters, client: Client, username: str, password: str) -> None:
        self.name = f"watttime/{settings.zone}"
        self.left_out = 0
        self._region = settings.region or settings.zone
        self._horizon_hours = settings.horizon_hours
        self._shape = Shape(settings.zone, "watttime", average=False, lifecycle=False)
        self._client = client
        self._login = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
        self._token = ""

    def fetch(self, now_ns: int) -> list[Signal]:
        """One curve, issued when the provider says; raises :class:`FeedError`."""
        fresh = not self._token
        if fresh:
            self._log_in(now_ns)
        try:
            return [self._forecast(now_ns)]
        except Unauthorized:
            self._token = ""
            if fresh:
                raise
        self._log_in(now_ns)
        return [self._forecast(now_ns)]

    def _log_in(self, now_ns: int) -> None:
        body = self._client.get("/login", {}, {"Authorization": self._login}, now_ns, keep=False)
        token = decode_json(body, _Login, self._client.where("/login")).token
        if not (token and token.isascii() and token.isprintable()):
            raise FeedError(f"{self._client.where('/login')}: $.token: not a token; the provider has changed")
        self._token = token

    def _forecast(self, now_ns: int) -> Signal:
        path = "/v3/forecast"
        query = {"region": self._region, "signal_type": SIGNAL, "horizon_hours": str(self._horizon_hours)}
        body = self._client.get(path, query, {"Authorization": f"Bearer {self._token}"}, now_ns)
        where = f"{self._client.where(path)} of {self._region}"
        answer = decode_json(body, _Answer, where)
        meta = answer.meta
        expected = {"region": self._region, "signal_type": SIGNAL, "units": UNITS}
        for field, value in expected.items():
            found = getattr(meta, field)
            if found != value:
                text = f"{where}: $.meta.{field}: expected {value!r}, got {found[:40]!r}; check region and base_url"
                raise FeedError(text, lasting=True)
        step_s = meta.data_point_period_seconds
        if not 1 <= step_s <= 86_400:
            raise FeedError(f"{where}: $.meta.data_point_period_seconds: {step_s:g} is not in 1..86400", lasting=True)
        points = [
            Point(
                time_ns(row.point_time, f"{where}: $.data[{i}].point_time"),
                None if row.value is None else row.value * G_PER_KWH_OF_LB_PER_MWH,
            )
            for i, row in enumerate(answer.data)
        ]
        issued_ns = time_ns(meta.generated_at, f"{where}: $.meta.generated_at")
        cut = cut_curve(points, self._shape, step_s=step_s, published_ns=issued_ns, now_ns=now_ns, where=where)
        self.left_out += cut.left_out
        return cut.signal
