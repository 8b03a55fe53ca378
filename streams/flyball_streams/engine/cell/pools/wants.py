"""Replicas without room, and since when."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import WorkloadSpec

LAPSES_S = 15.0
LAPSES_TICKS = 3
"""A want that is not repeated for the longer of these is over."""


class UnmetDemand(msgspec.Struct):
    """A workload lacks room for ``replicas`` since ``since_ns``; this was last repeated at ``seen_ns``.

    ``proposal`` is the id of the last proposal that requested them. ``pools`` has the replicas by pool where machines
    of certain pools were chosen for them; empty: any pool.
    """

    workload: str
    replicas: int
    since_ns: int
    seen_ns: int
    proposal: str = ""
    pools: dict[str, int] = {}


def note(
    wants: dict[str, UnmetDemand],
    workload: str,
    replicas: int,
    proposal: str,
    now_ns: int,
    pools: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Note that a workload lacks room for ``replicas``, in certain pools or anywhere; 0: it has room for all."""
    known = wants.get(workload)
    if replicas <= 0:
        wants.pop(workload, None)
    elif known is None:
        wants[workload] = UnmetDemand(workload, replicas, now_ns, now_ns, proposal, dict(pools))
    else:
        known.replicas, known.seen_ns, known.proposal, known.pools = replicas, now_ns, proposal, dict(pools)


def lapse(wants: dict[str, UnmetDemand], now_ns: int, period_ns: int) -> None:
    """Drop wants that are not repeated any more, and those from before the cell's clock was set back."""
    most_ns = max(round(LAPSES_S * NS_PER_S), LAPSES_TICKS * period_ns)
    for name, want in list(wants.items()):
        if not 0 <= now_ns - want.seen_ns <= most_ns:
            del wants[name]


def is_worth_machines(spec: WorkloadSpec, now_ns: int, start_s: float) -> bool:
    """Whether machines that start in ``start_s`` may be bought for a workload.

    Interruptible work waits for room. A job that would miss its deadline by waiting does not, unless it is too late
    already. How much of a job is done is unknown, so its whole duration counts.
    """
    if not spec.interruptible:
        return True
    if spec.deadline_ns is None:
        return False
    left_s = (spec.deadline_ns - now_ns) / NS_PER_S - start_s - spec.cold_start_s
    return 0 < left_s <= (spec.duration_s or 0.0)
