"""Who gives way to somebody more important, and how much of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.capacity import SLACK, Capacity, accepts
from flyball_streams.engine.cell.memory import Memory


class Bundle(NamedTuple):
    """Replicas of one victim that stop together: the GPUs that this frees by model, and how many of them help."""

    victim: WorkloadSpec
    names: tuple[str, ...]
    frees: Mapping[str, float]
    gain: float


def candidates(spec: WorkloadSpec, capacity: Capacity, memory: Memory, now: int) -> list[Bundle]:
    """What could stop for ``spec``, cheapest first: interruptible, less important, and on GPUs that it accepts."""
    found: list[Bundle] = []
    for victim in capacity.interruptible:
        if victim.priority >= spec.priority:
            break
        found += _bundles(spec, victim, capacity, memory, now)
    return found


def choose(bundles: Sequence[Bundle], gpus: float) -> list[Bundle]:
    """Fewest of the cheapest bundles that bring ``gpus`` GPUs, in their order."""
    chosen: list[Bundle] = []
    gained = 0.0
    for bundle in bundles:
        if gained >= gpus - SLACK:
            break
        chosen.append(bundle)
        gained += bundle.gain
    for bundle in reversed(chosen[:]):  # a large one at the end may have made dear ones before it needless
        if gained - bundle.gain >= gpus - SLACK:
            chosen.remove(bundle)
            gained -= bundle.gain
    return chosen


def _bundles(spec: WorkloadSpec, victim: WorkloadSpec, capacity: Capacity, memory: Memory, now: int) -> list[Bundle]:
    order = memory.believed(victim.workload, now)
    stopping = frozenset(order.victims) if order is not None else frozenset[str]()
    running, parts = capacity.parts(victim, stopping)
    if order is not None and order.replicas < running:
        return []  # some of its replicas are about to stop, and nobody knows which
    least = max(0, victim.min_replicas)
    found: list[Bundle] = []
    for part, frees in parts:
        gain = sum(n for model, n in frees.items() if accepts(spec, model))
        if gain > 0 and running - len(part) >= least:
            found.append(Bundle(victim, part, frees, gain))
            running -= len(part)
    return found
