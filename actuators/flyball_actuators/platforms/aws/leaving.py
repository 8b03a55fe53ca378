"""Returns machines on AWS: choose, tag, terminate one by one, wait until they are gone."""

import time
from collections.abc import Callable

from flyball_actuators.platforms.aws.api import Aws
from flyball_actuators.platforms.aws.machines import COUNT, LEAVING, Instances, instances, machine, mark_leaving, tag_of
from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.operation import Operation, mark, operation_of
from flyball_actuators.platforms.pools.victims import Machine, choose
from flyball_contracts.records import Scale

End = Callable[[str], Rejected | None]
"""Terminates one instance by id; safe to repeat."""


def begin_return(
    aws: Aws,
    pool: str,
    machines: list[Machine],
    decision: Scale,
    current: PoolState,
    busy: frozenset[str],
    *,
    dry_run: bool,
) -> Handle | Rejected:
    """Choose and tag the machines to return; :func:`poll_return` terminates them."""
    own = mark(decision.id)
    chosen = choose(machines, current.machines - decision.replicas, own, busy, decision.victims)
    if isinstance(chosen, Rejected):
        return chosen
    ids = sorted(one.id for one in chosen)
    operation = operation_of(decision, pool, current.machines, time.time_ns(), ids=",".join(ids))
    if dry_run:
        return operation.handle(f"would return {', '.join(ids)} of pool {pool!r}", dry_run=True)
    problem = mark_leaving(aws, ids, own)
    if problem is not None:
        return problem
    return operation.handle(f"returns {', '.join(ids)} of pool {pool!r}")


def poll_return(
    aws: Aws,
    operation: Operation,
    now_ns: int,
    busy: frozenset[str],
    end: End,
    observe: Callable[[], PoolState | Rejected],
) -> Progress:
    """Terminate tagged machines that still exist; done once all are gone. A machine that got work stays."""
    own = mark(operation.decision)
    marked = instances(aws, LEAVING, own)
    if isinstance(marked, Rejected):
        return Failed(f"unknown outcome: {marked.detail}")
    theirs = Instances(one for one in marked if one["InstanceId"] in operation.machine_ids)
    at_work = [one["InstanceId"] for one in theirs.alive if machine(one).names & busy]
    idle = [one["InstanceId"] for one in theirs.alive if one["InstanceId"] not in at_work]
    problems = [problem.detail for one in idle if (problem := end(one)) is not None]
    problems += [f"{one} got work since it was chosen, and stays" for one in at_work]
    current = observe()
    if isinstance(current, Rejected):
        return Failed(f"unknown outcome: {current.detail}")
    if problems:
        return Failed("; ".join(problems), current.state)
    left = theirs.left.ids
    if not left and len(theirs) >= len(operation.machine_ids):
        return Done(current.state, now_ns, f"{operation.ids} of pool {operation.pool!r} are gone")
    if now_ns >= operation.until_ns:
        return Failed(
            f"{', '.join(left) or 'machines'} of pool {operation.pool!r} do not end; look at them", current.state
        )
    return Running(f"{len(left)} machines of pool {operation.pool!r} are still ending")


def find_return(aws: Aws, pool: str, decision: Scale) -> Handle | Rejected | None:
    """The operation of a decision that has tagged all its machines; with fewer tags it was never started."""
    marked = instances(aws, LEAVING, mark(decision.id))
    if isinstance(marked, Rejected):
        return marked
    if not marked:
        return None
    wanted = int(tag_of(marked[0], COUNT) or len(marked))
    if len(marked) < wanted and len(marked.alive) == len(marked):
        return None
    before = decision.replicas + wanted
    operation = operation_of(decision, pool, before, time.time_ns(), ids=",".join(marked.ids))
    return operation.handle("found on the machines")
