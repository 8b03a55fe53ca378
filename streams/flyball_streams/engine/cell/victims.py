"""Who gives way to somebody more important, and how much of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.capacity import SLACK, Capacity, accepts, gang_of
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.directory import Replica


class Bundle(NamedTuple):
    """Replicas of one victim that stop together: the GPUs that this frees by model, and how many of them help."""

    victim: WorkloadSpec
    names: tuple[str, ...]
    frees: Mapping[str, float]
    gain: float


def candidates(
    spec: WorkloadSpec, workloads: Sequence[WorkloadSpec], capacity: Capacity, memory: Memory, now: int
) -> list[Bundle]:
    """What could stop for ``spec``, cheapest first: interruptible, less important, and on GPUs that it accepts."""
    found: list[Bundle] = []
    for victim in sorted(workloads, key=_cost):
        if victim.interruptible and victim.priority < spec.priority:
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
    stopping = set(order.victims) if order is not None else set[str]()
    replicas: dict[str, list[Replica]] = {}
    for replica in capacity.directory.replicas(victim.workload):
        if replica.name not in stopping:
            replicas.setdefault(replica.name, []).append(replica)
    names, running = list(replicas), len(replicas)
    if order is not None and order.replicas < running:
        return []  # some of its replicas are about to stop, and nobody knows which
    gang, least = gang_of(victim), max(0, victim.min_replicas)
    found: list[Bundle] = []
    for i in range(0, len(names), gang):
        part = tuple(names[i : i + gang])
        frees = capacity.freed_by_part(victim.workload, part, (r for name in part for r in replicas[name]))
        gain = sum(n for model, n in frees.items() if accepts(spec, model))
        if gain > 0 and running - len(part) >= least:
            found.append(Bundle(victim, part, frees, gain))
            running -= len(part)
    return found


def _cost(spec: WorkloadSpec) -> tuple[int, float, str]:
    """Order of victims: least important, then least GPU time lost to checkpoints, then by name."""
    return spec.priority, spec.checkpoint_s * spec.gpus_per_replica * spec.gang_size, spec.workload
