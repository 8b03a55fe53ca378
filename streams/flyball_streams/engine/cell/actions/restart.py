"""Restarts work that hangs: all its replicas stop, then as many start."""

from collections.abc import Callable, Iterator

from flyball_contracts.records import AnyDecision, Evidence, Preempt, Proposal, WorkloadSpec
from flyball_streams.engine.cell.actions.preempt import give_way, granted
from flyball_streams.engine.cell.actions.scale import order, to_restore
from flyball_streams.engine.cell.backoff import Attempt, Waited
from flyball_streams.engine.cell.cycle import Cycle, cited
from flyball_streams.engine.cell.memory import Preempted

CONFIDENCE = 0.95


def restart(cycle: Cycle, p: Proposal, spec: WorkloadSpec) -> Iterator[Preempt]:
    """Stop all replicas of a workload, to start them again.

    They stop without a checkpoint, as they stand still. A workload is not restarted while other work has taken some of
    its replicas.
    """
    name, memory = p.workload, cycle.memory
    running = cycle.running(name)
    moves = any(move.workload == name for move in memory.moves.values())
    if not running or moves or name in memory.preempted or cycle.believed(name) is not None:
        return
    made = Attempt("stop", "", running, 0)
    waited = cycle.admit(name, made)
    if waited is None:
        return
    memory.preempted[name] = Preempted(running, cycle.now_ns, restarts=True)
    reason = f"Stop all {running} replicas of {name} to start them again: {p.reason}"
    yield Preempt(
        id=cycle.order(spec, made, [], [], {}),
        **cycle.common(name, reason, p.confidence, cited(p), waited),
        expected=cycle.effect(spec, -running),
        replicas=0,
        replicas_before=running,
        checkpoint=False,
        beneficiary=name,
    )


def start_again(cycle: Cycle, is_checked: Callable[[str], bool]) -> Iterator[AnyDecision]:
    """Start what has stopped to be restarted; this need not wait for the rate limit.

    It has stopped when the actuator reports so: the last inventory of a node that has died still lists its replicas.
    While its nodes are checked, room is kept for it. If there is not enough room any more, less important work gives
    way, or fewer replicas start, in whole gangs and not less than the minimum; the others follow once there is room.
    """
    for was, spec, running, wanted in to_restore(cycle, restarts=True):
        name = spec.workload
        order = cycle.memory.orders.get(name)
        was.stopped |= not cycle.directory.held(name).replicas
        was.stopped |= order is not None and not order.replicas and order.report.status == "done"
        if was.stopped and is_checked(name):
            for _ in range(wanted):
                cycle.placement.place(spec)
        elif was.stopped and running:
            cycle.memory.preempted[name] = Preempted(was.replicas, cycle.now_ns)  # it runs with fewer
        elif was.stopped:
            yield from _start(cycle, spec, wanted)


def _start(cycle: Cycle, spec: WorkloadSpec, wanted: int) -> Iterator[AnyDecision]:
    name = spec.workload

    def admitted(replicas: int) -> Waited | None:
        return cycle.admit(name, Attempt("scale", "", 0, replicas), emergency=True)

    grant = granted(cycle, spec, 0, wanted, lambda replicas: admitted(replicas) is not None)
    cycle.lacks(name, 0 if cycle.placement.tenancy.bars(spec) else wanted - grant.replicas)
    waited = admitted(grant.replicas) if grant.replicas >= max(1, spec.min_replicas) else None
    if waited is None:
        cycle.placement.rollback(grant.mark)
        return
    yield from give_way(cycle, spec, grant)
    room = "" if grant.replicas == wanted else f"; room for {grant.replicas} of {wanted} only"
    reason = f"out from 0 to {grant.replicas}: it was stopped to be restarted{room}"
    evidence = (Evidence(name="replicas.before", value=float(wanted), unit="{replica}"),)
    made = Attempt("scale", "", 0, grant.replicas)
    yield order(cycle, spec, made, grant.places, reason, CONFIDENCE, evidence, waited)
