"""Demand of one workload over event time, and what was forecast of it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from flyball_contracts.records import Capacity, Demand, Forecast, Proposal, Tick, Wish, WorkloadSpec
from flyball_streams.dashboard.bounded import Bounded

HISTORY_TICKS = 360


class Point(NamedTuple):
    """One tick, summed over its sources; ``None`` where no source reported the quantity."""

    end_ns: int
    work: float | None
    busy: float | None
    replicas: int
    ready: int


@dataclass(slots=True)
class Workload:
    """One workload: its specification, demand by tick and source, and its latest forecast, capacity and wishes."""

    name: str
    spec: WorkloadSpec | None = None
    forecast: Forecast | None = None
    capacity: Capacity | None = None
    wishes: dict[Wish, tuple[int, Proposal]] = field(default_factory=dict[Wish, tuple[int, Proposal]])
    ticks: Bounded[int, dict[str, Demand]] = field(default_factory=lambda: Bounded(HISTORY_TICKS))

    def add(self, demand: Demand, source: str, tick: Tick) -> None:
        """Take one source's share of a tick."""
        sources = self.ticks.get(tick.end_ns)
        if sources is None:
            self.ticks[tick.end_ns] = {source: demand}
        else:
            sources[source] = demand

    def wish(self, proposal: Proposal, tick: Tick) -> None:
        """Take a wish of a tick; of each kind the latest counts."""
        known = self.wishes.get(proposal.wish)
        if known is None or tick.index >= known[0]:
            self.wishes[proposal.wish] = tick.index, proposal

    @property
    def proposal(self) -> Proposal | None:
        """The latest wish for replicas."""
        return self.wishes["scale"][1] if "scale" in self.wishes else None

    @property
    def advice(self) -> Proposal | None:
        """The latest wish for other resources."""
        return self.wishes["resize"][1] if "resize" in self.wishes else None

    @property
    def choice(self) -> Proposal | None:
        """The latest wish for other offers."""
        return self.wishes["choose"][1] if "choose" in self.wishes else None

    def points(self) -> list[Point]:
        """The known ticks in order."""
        return [_point(end_ns, list(sources.values())) for end_ns, sources in sorted(self.ticks.items())]


def _point(end_ns: int, parts: list[Demand]) -> Point:
    return Point(
        end_ns,
        _sum([part.work_rate for part in parts]),
        _sum([part.utilization_sum for part in parts]),
        sum(part.replicas for part in parts),
        sum(part.ready for part in parts),
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
