"""Demand of a workload over all node lanes that know it."""

from collections.abc import Mapping

from flyball_contracts.records import Demand, Usage

SUMS = (
    *("work_rate", "request_rate", "queued", "active", "utilization_sum", "power_w"),
    *("tokens_in_rate", "tokens_out_rate"),
)


def merge(parts: Mapping[str, Mapping[str, Demand]]) -> dict[str, Demand]:
    """Return one demand for each workload, in the order of their names, from those by source and workload.

    Sources are added in the order of their names, because float addition heeds it; a value that none of them knew
    stays unknown.
    """
    by_workload: dict[str, list[Demand]] = {}
    for _, said in sorted(parts.items()):
        for workload, demand in said.items():
            by_workload.setdefault(workload, []).append(demand)
    return {name: found[0] if len(found) == 1 else _sum(found) for name, found in sorted(by_workload.items())}


def _sum(found: list[Demand]) -> Demand:
    weighted = [(d.progress, d.replicas) for d in found if d.progress is not None]
    weight = sum(n for _, n in weighted)
    progress = sum(p * n for p, n in weighted) / weight if weight > 0 else found[0].progress
    return Demand(
        workload=found[0].workload,
        replicas=sum(d.replicas for d in found),
        ready=sum(d.ready for d in found),
        devices=sum(d.devices for d in found),
        work_rate=_known_sum([d.work_rate for d in found]),
        request_rate=_known_sum([d.request_rate for d in found]),
        queued=_known_sum([d.queued for d in found]),
        active=_known_sum([d.active for d in found]),
        utilization_sum=_known_sum([d.utilization_sum for d in found]),
        power_w=_known_sum([d.power_w for d in found]),
        progress=progress,
    )


def _known_sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
