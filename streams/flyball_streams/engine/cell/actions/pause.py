"""Pauses work that can wait."""

from collections.abc import Iterator

from flyball_contracts.records import Preempt, Proposal, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import bounded
from flyball_streams.engine.cell.backoff import Attempt
from flyball_streams.engine.cell.cycle import Cycle, cited


def pause(cycle: Cycle, p: Proposal, spec: WorkloadSpec) -> Iterator[Preempt]:
    """Scale a workload to its minimum until the time in the proposal, as far as the last refusal's limits allow."""
    running, least = cycle.running(p.workload), bounded(spec, 0)
    if not spec.interruptible or running <= least:
        return
    after = running - cycle.leavable(spec, running, running - least)
    made = Attempt("stop", "", running, after)
    waited = cycle.admit(p.workload, made)
    if waited is None:
        return
    cycle.memory.preempted.pop(p.workload, None)  # it is paused by its own proposal, so it is not to be restored
    replicas = cycle.directory.replicas(p.workload)
    names = [] if after else sorted({r.name for r in replicas})
    order = cycle.believed(p.workload)
    already = set(order.victims) if order is not None else set[str]()
    cycle.release([r for r in replicas if r.name in names and r.name not in already])
    limited = "" if after == least else f"; to {least} when the actuator's limits let so many go at once"
    yield Preempt(
        id=cycle.order(spec, made, [], names, {}),
        **cycle.common(p.workload, f"Pause {p.workload}: {p.reason}{limited}", p.confidence, cited(p), waited),
        expected=cycle.effect(spec, after - running),
        replicas=after,
        replicas_before=running,
        until_ns=p.until_ns,
        checkpoint=spec.checkpoint_s > 0,
    )
