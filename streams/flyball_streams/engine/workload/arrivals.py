"""Demand as the gateways in front of a workload see it, which is all there is to see while it has no replica."""

from collections.abc import Callable, Mapping

import msgspec

from flyball_contracts.records import Arrivals, Demand
from flyball_streams.engine.workload.merge import plus

BySource = Mapping[str, tuple[Arrivals, ...]]
"""What the gateways saw, by source."""
NOTHING: BySource = {}


def merge_arrivals(by_source: BySource) -> dict[str, Arrivals]:
    """One of each workload over all sources, which are added in the order of their names."""
    found: dict[str, Arrivals] = {}
    for _, arrivals in sorted(by_source.items()):
        for one in arrivals:
            before = found.get(one.workload)
            found[one.workload] = one if before is None else _sum(before, one)
    return found


def with_unserved(demands: Mapping[str, Demand], arrived: Mapping[str, Arrivals]) -> dict[str, Demand]:
    """The demands with those of workloads that have gateways and no replica, in the order of their names."""
    unserved = {
        name: Demand(workload=name, replicas=0, ready=0, devices=0, utilization_sum=0.0)
        for name in arrived
        if name not in demands
    }
    return dict(sorted({**demands, **unserved}.items()))


def with_arrivals(demand: Demand, arrived: Arrivals, work_of_request: Callable[[str], float]) -> Demand:
    """Demand that counts requests where they arrive.

    The gateways' rate replaces the replicas' sum; what waits at a gateway is added to what waits at the replicas. While
    no replica is ready nobody measures work: it is what arrives, at the work that a request took before. Where that was
    never seen no work is claimed, for what waits and arrives asks for a replica by itself.
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
        queued=plus(demand.queued, _held_back(demand, arrived)),
    )


def _held_back(demand: Demand, arrived: Arrivals) -> float | None:
    """Requests that wait at the gateways: those they say, else those without an answer that no replica has."""
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
