"""Scales workloads to the wanted replicas, as far as there is room."""

from collections.abc import Iterator

from flyball_contracts.records import AnyDecision, Evidence, Proposal, Scale, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import bounded
from flyball_streams.engine.cell.actions.preempt import give_way, granted
from flyball_streams.engine.cell.backoff import Attempt, Waited
from flyball_streams.engine.cell.cycle import Cycle, cited
from flyball_streams.engine.cell.memory import Preempted
from flyball_streams.engine.cell.placement import Place


def scale(cycle: Cycle, p: Proposal, spec: WorkloadSpec) -> Iterator[AnyDecision]:
    """Scale in, or out as far as there is room after preempting less important work."""
    name, running = p.workload, cycle.running(p.workload)
    wanted = bounded(spec, p.replicas or 0)
    observed = running if p.observed_replicas is None else p.observed_replicas
    if (wanted - running) * ((p.replicas or 0) - observed) < 0:
        return  # proposed for another number of replicas: it would now do the opposite
    if wanted <= running:
        cycle.lacks(name, 0)
        cycle.rate_limit.end_wait(name)
    if wanted == running or name in cycle.decided:
        return
    if cycle.resting(name, wanted - running) or cycle.is_rising(name, running, wanted):
        cycle.unmet |= wanted > running
        cycle.still_lacks(name, max(0, wanted - running))
        return
    if wanted < running:
        least, wanted = wanted, running - cycle.leavable(spec, running, running - wanted)
        made = Attempt("scale", "", running, wanted)
        waited = cycle.admit(name, made)
        if waited is not None:
            cycle.memory.preempted.pop(name, None)  # its own proposal counts from now on
            limited = "" if wanted == least else f"; to {least} when the actuator's limits let so many go at once"
            reason = f"in from {running} to {wanted}: {p.reason}{limited}"
            yield order(cycle, spec, made, [], reason, p.confidence, cited(p), waited)
        return
    wakes, down = cycle.wakes(name, wanted), cycle.is_down(name, wanted)

    def admitted(replicas: int) -> Waited | None:
        made = Attempt("scale", "", running, replicas)
        return cycle.admit(name, made, urgent=wakes, emergency=down) if replicas > running else None

    grant = granted(cycle, spec, running, wanted, lambda replicas: admitted(replicas) is not None)
    barred = cycle.placement.tenancy.bars(spec)  # more machines would not help
    cycle.lacks(name, 0 if barred else wanted - grant.replicas, p.id)
    waited = admitted(grant.replicas)
    if waited is None:
        cycle.placement.rollback(grant.mark)
        return
    yield from give_way(cycle, spec, grant)
    cycle.rate_limit.end_wait(name)
    cycle.memory.preempted.pop(name, None)
    room = "" if grant.replicas == wanted else f"; room for {grant.replicas} of {wanted} only"
    reason = f"out from {running} to {grant.replicas}: {p.reason}{room}"
    made = Attempt("scale", "", running, grant.replicas)
    yield order(cycle, spec, made, grant.places, reason, p.confidence, cited(p), waited)


def bring_back(cycle: Cycle) -> Iterator[Scale]:
    """Restore preempted workloads once no more important one has needed their room for the reversal cooldown."""
    hold_s = cycle.config.sizing.reversal_cooldown_s
    for was, spec, running, wanted in to_restore(cycle, restarts=False):
        if cycle.now_ns - was.since_ns < hold_s * 1e9 or cycle.resting(spec.workload, wanted - running):
            continue
        yield from _bring_back(cycle, spec, running, wanted)


def to_restore(cycle: Cycle, *, restarts: bool) -> Iterator[tuple[Preempted, WorkloadSpec, int, int]]:
    """Preempted workloads to restore, the most important first, with the replicas that run and those wanted.

    ``restarts``: those that were stopped to be started again, else all others. Workloads that are back are forgotten.
    """
    preempted = cycle.memory.preempted
    names = [name for name, was in preempted.items() if was.restarts == restarts]
    for name in sorted(names, key=lambda n: (-cycle.priority(n), n)):
        was, spec, running = preempted[name], cycle.spec(name), cycle.running(name)
        wanted = bounded(spec, was.replicas) if spec is not None else 0
        if spec is not None and wanted > running:
            yield was, spec, running, wanted
        elif spec is None or cycle.believed(name) is None:  # an order in flight may still fail
            del preempted[name]


def _bring_back(cycle: Cycle, spec: WorkloadSpec, running: int, wanted: int) -> Iterator[Scale]:
    """Restore a preempted workload if there is room for all of it."""
    free, mark = cycle.placement.usable(spec), cycle.placement.mark()
    places = [place for _ in range(wanted - running) if (place := cycle.placement.place(spec)) is not None]
    made = Attempt("scale", "", running, wanted)
    waited = cycle.admit(spec.workload, made) if len(places) == wanted - running else None
    if waited is None:
        cycle.placement.rollback(mark)
        return
    reason = f"out from {running} to {wanted}: it was preempted and there is room again"
    evidence = (Evidence(name="gpus.free", value=float(free), unit="{gpu}"),)
    yield order(cycle, spec, made, places, reason, 0.8, evidence, waited)


def order(
    cycle: Cycle,
    spec: WorkloadSpec,
    made: Attempt,
    places: list[Place],
    reason: str,
    confidence: float,
    evidence: tuple[Evidence, ...],
    waited: Waited,
) -> Scale:
    """Order a number of replicas."""
    return Scale(
        id=cycle.order(spec, made, places, [], {}),
        **cycle.common(spec.workload, f"Scale {spec.workload} {reason}", confidence, evidence, waited),
        expected=cycle.effect(spec, made.after - made.before),
        replicas=made.after,
        replicas_before=made.before,
    )
