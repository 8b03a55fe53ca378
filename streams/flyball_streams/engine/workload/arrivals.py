"""Demand at the gateways in front of a workload: the only known demand while it has no replica."""

from collections.abc import Callable, Mapping

import msgspec

from flyball_contracts.records import Arrivals, Demand
from flyball_streams.engine.workload.merge import plus

BySource = Mapping[str, tuple[Arrivals, ...]]
"""Arrivals at gateways, by source."""
NOTHING: BySource = {}


def merge_arrivals(by_source: BySource) -> dict[str, Arrivals]:
    """Arrivals by workload, summed over all sources in the order of their names."""
    found: dict[str, Arrivals] = {}
    for _, arrivals in sorted(by_source.items()):
        for one in arrivals:
            before = found.get(one.workload)
            found[one.workload] = one if before is None else _sum(before, one)
    return found


def with_unserved(demands: Mapping[str, Demand], arrived: Mapping[str, Arrivals]) -> dict[str, Demand]:
    """The demands, with empty ones for workloads that have gateways and no replica, by name."""
    unserved = {
        name: Demand(workload=name, replicas=0, ready=0, devices=0, utilization_sum=0.0)
        for name in arrived
        if name not in demands
    }
    return dict(sorted({**demands, **unserved}.items()))


def with_arrivals(demand: Demand, arrived: Arrivals, work_of_request: Callable[[str], float]) -> Demand:
    """Demand with requests counted where they arrive.

    The gateways' rate replaces the replicas' sum, and requests queued at gateways are added to those at replicas. While
    no replica is ready, work is the request rate times the work of earlier requests; if that is unknown, work is 0, as
    arriving requests alone call for a replica.
    """
    rate = arrived.request_rate
    work = demand.work_rate
    if demand.ready == 0 and work is None and (demand.replicas == 0 or rate is not None):
        each = work_of_request(demand.workload)
        work = rate * each if rate is not None and each == each else 0.0
    return msgspec.structs.replace(
        demand,
        work_rate=work,
        request_rate=demand.request_rate if rate is None else rate,
        queued=plus(demand.queued, _queued_at_gateways(demand, arrived)),
    )


def _queued_at_gateways(demand: Demand, arrived: Arrivals) -> float | None:
    """Requests queued at gateways: as reported, else active requests that are not at any replica."""
    if arrived.queued is not None or arrived.active is None:
        return arrived.queued
    if demand.ready == 0:
        return arrived.active
    if demand.active is None:
        return None
    return max(0.0, arrived.active - demand.active - (demand.queued or 0.0))


def _sum(a: Arrivals, b: Arrivals) -> Arrivals:
    return Arrivals(
        workload=a.workload,
        request_rate=plus(a.request_rate, b.request_rate),
        queued=plus(a.queued, b.queued),
        active=plus(a.active, b.active),
    )
