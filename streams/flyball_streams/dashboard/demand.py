"""Demand of one workload over event time, and what was forecast of it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from flyball_contracts.records import Demand, Forecast, Proposal, WorkloadSpec
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
    """One workload: its specification, demand, latest forecast and latest wish to scale."""

    name: str
    spec: WorkloadSpec | None = None
    forecast: Forecast | None = None
    proposal: Proposal | None = None
    ticks: Bounded[int, dict[str, Demand]] = field(default_factory=lambda: Bounded(HISTORY_TICKS))

    def add(self, demand: Demand) -> None:
        """Take one source's share of a tick."""
        sources = self.ticks.get(demand.tick.index)
        if sources is None:
            self.ticks[demand.tick.index] = {demand.source: demand}
        else:
            sources[demand.source] = demand

    def points(self) -> list[Point]:
        """The known ticks in order."""
        return [_point(list(sources.values())) for _, sources in sorted(self.ticks.items())]


def _point(parts: list[Demand]) -> Point:
    return Point(
        max(part.tick.end_ns for part in parts),
        _sum([part.work_rate for part in parts]),
        _sum([part.utilization_sum for part in parts]),
        sum(part.replicas for part in parts),
        sum(part.ready for part in parts),
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
