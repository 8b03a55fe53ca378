"""UK Carbon Intensity API: Great Britain, half-hourly, 48 h ahead.

See https://carbon-intensity.github.io/api-definitions/.

Average intensity at the point of use, without the life cycle of plants. The response has no time of issue: a curve
counts as issued when a change is first seen.
"""

from datetime import UTC, datetime

import msgspec

from flyball_collectors.feeds.answers import decode_json, time_ns
from flyball_collectors.feeds.client import Client
from flyball_collectors.feeds.curve import Point, Shape, cut_curve, first_seen
from flyball_contracts.config import UkCarbonSettings
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Signal

STEP_S = 1800.0
_STEP_NS = round(STEP_S * NS_PER_S)


class _Intensity(msgspec.Struct):
    forecast: float | None


class _Row(msgspec.Struct):
    start: str = msgspec.field(name="from")
    end: str = msgspec.field(name="to")
    intensity: _Intensity


class _Answer(msgspec.Struct):
    data: list[_Row]


class UkCarbon:
    """The national forecast; see :class:`flyball_collectors.feeds.base.Feed`."""

    def __init__(self, settings: UkCarbonSettings, client: Client) -> None:
        self.name = f"uk_carbon/{settings.zone}"
        self.left_out = 0
        self._shape = Shape(settings.zone, "uk_carbon", lifecycle=False)
        self._client = client
        self._last: Signal | None = None

    def fetch(self, now_ns: int) -> list[Signal]:
        """One curve from the half hour that holds ``now_ns`` on; raises :class:`FeedError`."""
        since = datetime.fromtimestamp(now_ns // _STEP_NS * _STEP_NS / NS_PER_S, UTC)
        path = f"/intensity/{since:%Y-%m-%dT%H:%MZ}/fw48h"
        where = self._client.where(path)
        answer = decode_json(self._client.get(path, {}, {}, now_ns), _Answer, where)
        points: list[Point] = []
        odd = 0
        for i, row in enumerate(answer.data):
            start = time_ns(row.start, f"{where}: $.data[{i}].from")
            if time_ns(row.end, f"{where}: $.data[{i}].to") - start == _STEP_NS:
                points.append(Point(start, row.intensity.forecast))
            else:
                odd += 1
        cut = cut_curve(points, self._shape, step_s=STEP_S, published_ns=now_ns, now_ns=now_ns, where=where)
        self.left_out += cut.left_out + odd
        self._last = first_seen(cut.signal, self._last)
        return [self._last]
