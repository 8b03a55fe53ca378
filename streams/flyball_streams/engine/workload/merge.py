"""Demand of a workload over all node lanes that know it."""

from collections.abc import Mapping
from typing import Any

from flyball_contracts.records import Demand, Usage

SUMS = (
    *("work_rate", "request_rate", "queued", "active", "utilization_sum", "power_w"),
    *("tokens_in_rate", "tokens_out_rate", "failed"),
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
    sums: dict[str, Any] = {name: _known_sum([getattr(d, name) for d in found]) for name in SUMS}
    return Demand(
        workload=found[0].workload,
        replicas=sum(d.replicas for d in found),
        ready=sum(d.ready for d in found),
        devices=sum(d.devices for d in found),
        progress=progress,
        **sums,
        usage=_most([d.usage for d in found if d.usage is not None]),
    )


def _known_sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(found: list[Usage]) -> Usage | None:
    """Return the most of each; kills are added."""
    if len(found) < 2:
        return found[0] if found else None
    largest = {
        name: max((x for u in found if (x := getattr(u, name)) is not None), default=None)
        for name in Usage.__struct_fields__
    }
    return Usage(**largest | {"oom": _known_sum([u.oom for u in found])})
