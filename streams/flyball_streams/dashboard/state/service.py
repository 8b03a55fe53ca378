"""Service by telemetry alone, for a fleet without accounts."""

from typing import NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import DemandTick
from flyball_streams.dashboard.state.accounts import Moment
from flyball_streams.dashboard.state.bounded import Bounded
from flyball_streams.dashboard.state.demand import HISTORY_TICKS, Workload

_UNSETTLED = 2  # ticks that other lanes may still add to


class _Part(NamedTuple):
    """One message's share of a tick.

    ``judged`` requests have an objective; ``good`` are those whose mean latency in the tick met it.
    """

    requests: float
    judged: float
    good: float
    delay: float
    queued: float


class Service:
    """Requests, their delay and the queue by tick, summed over services and sources."""

    def __init__(self) -> None:
        self._ticks: Bounded[int, dict[tuple[str, str, int, int], _Part]] = Bounded(HISTORY_TICKS)

    def add(self, record: DemandTick, workloads: Bounded[str, Workload]) -> None:
        """Add the demand of one lane and tick."""
        end_ns, span_s = record.tick.end_ns, record.tick.period_ns / NS_PER_S
        requests = judged = good = delay = queued = 0.0
        for demand in record.demands:
            queued += demand.queued or 0.0
            if demand.latency_s is None or not demand.request_rate:
                continue
            count = demand.request_rate * span_s
            requests += count
            delay += count * demand.latency_s
            workload = workloads.get(demand.workload)
            objective = workload.spec.objective if workload and workload.spec else None
            if objective is not None:
                judged += count
                good += count * (demand.latency_s <= objective.delay_s)
        queued += sum(seen.queued or 0.0 for seen in record.arrivals)
        parts = self._ticks.ensure(end_ns, dict)
        parts[record.cell, record.source, record.partition, record.part] = _Part(requests, judged, good, delay, queued)

    def moments(self) -> list[Moment]:
        """Service over time; the share is of requests in ticks whose mean latency met the objective."""
        found: list[Moment] = []
        for end_ns, parts in sorted(self._ticks.items())[:-_UNSETTLED]:
            sums = _Part(*(sum(column) for column in zip(*parts.values(), strict=True)))
            found.append(
                Moment(
                    end_ns,
                    sums.good / sums.judged if sums.judged > 0 else None,
                    sums.queued,
                    sums.delay / sums.requests if sums.requests > 0 else None,
                )
            )
        return found
