"""Restarts work that hangs: all its replicas stop, then as many start."""

from collections.abc import Callable, Iterator

from flyball_contracts.records import Preempt, Proposal, Scale, WorkloadSpec
from flyball_streams.engine.cell.actions.scale import start, to_restore
from flyball_streams.engine.cell.backoff import Attempt
from flyball_streams.engine.cell.cycle import Cycle, cited
from flyball_streams.engine.cell.memory import Preempted


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


def start_again(cycle: Cycle, is_checked: Callable[[str], bool]) -> Iterator[Scale]:
    """Start what has stopped to be restarted; this need not wait for the rate limit.

    It has stopped when the actuator reports so: the last inventory of a node that has died still lists its replicas.
    While its nodes are checked, room is kept for it.
    """
    for was, spec, _, wanted in to_restore(cycle, restarts=True):
        name = spec.workload
        order = cycle.memory.orders.get(name)
        was.stopped |= not cycle.directory.held(name).replicas
        was.stopped |= order is not None and not order.replicas and order.report.status == "done"
        if was.stopped and is_checked(name):
            for _ in range(wanted):
                cycle.placement.place(spec)
        elif was.stopped:
            yield from start(cycle, spec, 0, wanted, "it was stopped to be restarted", 0.95, emergency=True)
