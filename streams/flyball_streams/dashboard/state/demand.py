"""Demand of one workload over event time, with its forecast."""

from dataclasses import dataclass, field
from typing import NamedTuple

from flyball_contracts.records import (
    Action,
    Arrivals,
    Capacity,
    Demand,
    Forecast,
    MachineChoice,
    Proposal,
    Tick,
    WorkloadSpec,
)
from flyball_streams.dashboard.state.bounded import Bounded
from flyball_streams.dashboard.state.progress import UNSETTLED, Progress
from flyball_streams.dashboard.state.thinned import Thinned

HISTORY_TICKS, PAST_POINTS = 360, 360
GONE_TICKS = 10
"""A workload that no source has reported for this many complete ticks does not run any more."""


class Point(NamedTuple):
    """One tick, summed over its sources; ``None`` where no source reported the quantity.

    ``arrived`` is requests per second at gateways, and ``waiting`` the requests that they hold or, if unknown, those in
    progress. ``latency_s`` is the mean of the requests that ended.
    """

    end_ns: int
    work: float | None
    busy: float | None
    replicas: int
    ready: int
    arrived: float | None = None
    waiting: float | None = None
    latency_s: float | None = None


@dataclass(slots=True)
class Workload:
    """One workload: its specification, demand and arrivals by tick and source, and its latest other records.

    ``progress`` is that of its partition of the demand topic, ``None`` before its first demand; ``seen_ns`` is the end
    of the newest tick with demand or arrivals.
    """

    name: str
    spec: WorkloadSpec | None = None
    forecast: Forecast | None = None
    capacity: Capacity | None = None
    choice: MachineChoice | None = None
    progress: Progress | None = None
    seen_ns: int = 0
    proposals: dict[Action, tuple[int, Proposal]] = field(default_factory=dict[Action, tuple[int, Proposal]])
    ticks: Bounded[int, dict[str, Demand]] = field(default_factory=lambda: Bounded(HISTORY_TICKS))

    gateways: Bounded[int, dict[str, Arrivals]] = field(default_factory=lambda: Bounded(HISTORY_TICKS))
    past: Thinned[Point] = field(default_factory=lambda: Thinned[Point](PAST_POINTS))

    def add(self, demand: Demand, source: str, tick: Tick) -> None:
        """Add one source's share of a tick."""
        if tick.end_ns not in self.ticks:
            self._settle()
        self.ticks.ensure(tick.end_ns, dict)[source] = demand
        self.seen_ns = max(self.seen_ns, tick.end_ns)

    def arrive(self, arrivals: Arrivals, source: str, tick: Tick) -> None:
        """Add what one source's gateways reported in a tick."""
        self.gateways.ensure(tick.end_ns, dict)[source] = arrivals
        self.seen_ns = max(self.seen_ns, tick.end_ns)

    def propose(self, proposal: Proposal, tick: Tick) -> None:
        """Add a proposal; of each kind only the latest is kept."""
        known = self.proposals.get(proposal.action)
        if known is None or tick.index >= known[0]:
            self.proposals[proposal.action] = tick.index, proposal

    @property
    def is_gone(self) -> bool:
        """Whether it was reported once, and is not any more."""
        if self.progress is None:
            return False
        return self.progress.complete_ns() - self.seen_ns > GONE_TICKS * self.progress.period_ns

    @property
    def proposal(self) -> Proposal | None:
        """The latest proposal for replicas."""
        return self.proposals["scale"][1] if "scale" in self.proposals else None

    @property
    def advice(self) -> Proposal | None:
        """The latest proposal for other resources."""
        return self.proposals["resize"][1] if "resize" in self.proposals else None

    @property
    def trust(self) -> str:
        """Whether its forecast is trusted, or why there is no forecast."""
        if self.forecast is not None:
            return "trusted" if self.forecast.trusted else "not trusted"
        return "none yet" if self.spec is not None else "none without a specification"

    def _settle(self) -> None:
        """Copy a tick to the long history :data:`UNSETTLED` ticks later: its sources have reported it by then."""
        end_ns = self.ticks.nth_newest(UNSETTLED)
        if end_ns is not None:
            demands, gateways = self.ticks.get(end_ns) or {}, self.gateways.get(end_ns) or {}
            self.past.add(end_ns, _point(end_ns, [*demands.values()], [*gateways.values()]))

    def history(self) -> list[Point]:
        """All ticks since the first one, in coarser steps the older they are."""
        recent = self.points()
        first = recent[0].end_ns if recent else 0
        return [point for time_ns, point in self.past.items() if time_ns < first] + recent

    def points(self) -> list[Point]:
        """The last complete ticks in order; a tick that a source has yet to report would look like a drop."""
        demands, gateways = dict(self.ticks.items()), dict(self.gateways.items())
        complete_ns = self.progress.complete_ns() if self.progress is not None else 0
        ends = sorted(end for end in demands.keys() | gateways.keys() if end <= complete_ns)[-HISTORY_TICKS:]
        return [_point(end, [*demands.get(end, {}).values()], [*gateways.get(end, {}).values()]) for end in ends]


def _point(end_ns: int, parts: list[Demand], gateways: list[Arrivals]) -> Point:
    return Point(
        end_ns,
        _sum([part.work_rate for part in parts]),
        _sum([part.utilization_sum for part in parts]),
        sum(part.replicas for part in parts),
        sum(part.ready for part in parts),
        _sum([gateway.request_rate for gateway in gateways]),
        _sum([gateway.active if gateway.queued is None else gateway.queued for gateway in gateways]),
        _mean([(part.request_rate or 0.0, part.latency_s) for part in parts]),
    )


def _mean(parts: list[tuple[float, float | None]]) -> float | None:
    known = [(weight, value) for weight, value in parts if value is not None and weight > 0]
    weight = sum(weight for weight, _ in known)
    return sum(share * value for share, value in known) / weight if known else None


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
