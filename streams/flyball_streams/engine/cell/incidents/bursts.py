"""Bursts: departures of devices of several workloads at once, of the same metrics in the same direction, are one event.

One cause, such as a slow store or a hot aisle, strikes devices whose workloads have nothing to do with each other. Each
of them departs by itself, and only time and direction show that they belong together. Departures within
:data:`SPAN_NS` are one incident if as many of them have a probability of at most :data:`CHANCE` by chance alone; in a
large cell with a large budget it takes more of them. An incident that has more than effects is never joined.
"""

from collections.abc import Collection, Iterable, Iterator
from math import prod

from flyball_contracts.ids import NS_PER_S
from flyball_streams.engine.budget import BUDGET_S
from flyball_streams.engine.cell.incidents.open_incident import OpenIncident

SPAN_NS = 120 * NS_PER_S
CHANCE = 0.01
DETECTOR = "departure"
Way = tuple[str, bool]
"""A metric, and whether it rose."""


def bursts(
    changed: Iterable[OpenIncident], incidents: Collection[OpenIncident], gpus: int, budget: float
) -> Iterator[list[OpenIncident]]:
    """Groups of incidents that are one event, each with one that has changed; no incident is in two of them.

    `gpus` is the number of GPUs in the cell, `budget` the budget of false incidents in 1,000 GPU-days.
    """
    per_span = gpus * budget / BUDGET_S * SPAN_NS / NS_PER_S
    taken: set[str] = set()
    for one in sorted((c for c in changed if _can_join(c)), key=lambda c: (c.onset_ns, c.id)):
        if one.id in taken:
            continue
        ways = _ways(one)
        near = [
            c for c in incidents if abs(c.onset_ns - one.onset_ns) <= SPAN_NS and c.id not in taken and _can_join(c)
        ]
        together = [c for c in near if c is one or ways & _ways(c)]
        others = len({place for c in together for place in _places(c)}) - 1
        if len(together) > 1 and prod(per_span / k for k in range(1, others + 1)) <= CHANCE:
            taken.update(c.id for c in together)
            yield together


def _can_join(incident: OpenIncident) -> bool:
    lead = incident.lead
    return (
        incident.status == "open"
        and incident.is_effect
        and incident.level in ("gpu", "workload")
        and lead.detector == DETECTOR
        and bool(lead.device)
    )


def _ways(incident: OpenIncident) -> set[Way]:
    return {
        (e.name, e.value > e.expected)
        for s in incident.symptoms.values() if s.detector == DETECTOR
        for e in s.evidence if e.expected is not None and e.value != e.expected
    }  # fmt: skip


def _places(incident: OpenIncident) -> set[str]:
    """Workloads with departures, and devices that no workload holds: devices of one workload depart together anyway."""
    return {s.workload or s.device for s in incident.symptoms.values() if s.detector == DETECTOR}
