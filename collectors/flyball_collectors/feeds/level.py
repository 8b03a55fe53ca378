"""A constant value until its source reports another, as a curve of the coming hours."""

from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.curve import Point, Shape, cut_curve, first_seen, possible
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Signal

STEP_S = 3600.0
HOURS = 24
_STEP_NS = round(STEP_S * NS_PER_S)


class Level:
    """Constant curves of 24 hours, from the present hour on."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._last: Signal | None = None

    def curve(self, value: float, now_ns: int, where: str) -> Signal:
        """Curve of a value in the unit of its kind, at ``now_ns``; raises :class:`FeedError` if it is impossible."""
        if not possible(value, self._shape.kind):
            raise FeedError(f"{where}: {value:g} is no {self._shape.kind.replace('_', ' ')}; the provider has changed")
        start_ns = now_ns // _STEP_NS * _STEP_NS
        points = [Point(start_ns + hour * _STEP_NS, value) for hour in range(HOURS)]
        cut = cut_curve(points, self._shape, step_s=STEP_S, published_ns=now_ns, now_ns=now_ns, where=where)
        self._last = first_seen(cut.signal, self._last)
        return self._last
