"""Moves replicas off unhealthy devices."""

from collections.abc import Iterator

from flyball_contracts.records import Effect, Migrate, Proposal, WorkloadSpec
from flyball_streams.engine.cell.backoff import Attempt
from flyball_streams.engine.cell.cycle import Cycle, cited
from flyball_streams.engine.cell.memory import Move
from flyball_streams.engine.cell.placement import Piece

FAILING = 0.9
"""Confidence of proposals to leave a failing device; those to leave a straggling one have less."""


def migrate(cycle: Cycle, p: Proposal, spec: WorkloadSpec) -> Iterator[Migrate]:
    """Move one replica to another node.

    If its device fails and no node has room, the decision names no node: the platform may find one. It is decided again
    when a node has room. A replica on a device that only straggles stays until a node has room.
    """
    subject = f"{p.workload}/{p.replica}"
    held = [r for r in cycle.directory.parts(p.workload, p.replica) if r.node == p.node]
    if not held or subject in cycle.memory.moves or cycle.memory.is_restarting(p.workload):
        return
    devices = len(held[0].devices)
    home = cycle.directory.inventories.get(p.node)
    tenancy, refused = cycle.placement.tenancy, cycle.memory.unsuitable.get(p.workload)
    among = None if refused is None else cycle.placement.nodes.keys() - refused.nodes.keys()
    room = cycle.placement.best(spec, devices, tenancy.closed(spec) | {p.node}, home.zone if home else "", among)
    if room is None and (p.confidence < FAILING or tenancy.bars(spec)):
        return
    without = f", without {len(refused.nodes)} nodes on which the platform does not let it run" if refused else ""
    made = Attempt("migrate", f"{p.node} {'room' if room else 'no room'}{without}", 0, 0)
    failing = p.confidence >= FAILING
    waited = cycle.admit(subject, made, target=p.workload, urgent=True, emergency=failing)
    if waited is None:
        return
    where, model, node = "no node has room yet", "", ""
    if room is not None:
        model, node = room
        where = f"node {node} has {cycle.placement.free[room]} free healthy GPUs"
        cycle.placement.take([Piece(model, node, float(devices))])
    where += without
    identity = cycle.issue(subject, made, p.workload, rescue=failing)
    cycle.memory.moves[subject] = Move(
        identity,
        p.workload,
        p.replica,
        p.node,
        node,
        model,
        devices,
        cycle.now_ns,
        cycle.expiry(),
        proposal=p,
    )
    reason = f"Move replica {p.replica} of {p.workload} away: {p.reason}; {where}"
    if spec.is_gang:
        waiting = round(sum(cycle.directory.held(p.workload).gpus.values()))
        reason += f"; all {waiting} GPUs of its gang wait until it runs again" if waiting > devices else ""
    yield Migrate(
        id=identity,
        **cycle.common(p.workload, reason, p.confidence, cited(p), waited),
        expected=Effect(gpus=0.0, cost_usd_per_hour=0.0),
        replica=p.replica,
        from_node=p.node,
        from_device=p.device,
        to_node=node,
    )
