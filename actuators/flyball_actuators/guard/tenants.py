"""No two tenants on one GPU, unless MIG divides it: they share its memory, and one can starve or crash the other."""

from collections.abc import Iterable, Iterator, Sequence

from flyball_actuators.guard.limits import UNSEEN_S, within
from flyball_actuators.guard.state import Context, Gpu, Verdict, World, refuse, starts_from
from flyball_contracts.records import Check, Migrate, Preempt


def starts_on(context: Context) -> str | None:
    """Node on which a decision starts a replica, empty if the platform may choose one; ``None`` if it starts none."""
    decision, observed = context.decision, context.observed
    if isinstance(decision, Check | Preempt):
        return None
    if isinstance(decision, Migrate):
        return decision.to_node if context.keeps_to_node else ""
    more = [(decision.replicas, starts_from(context)), *((p.replicas, p.replicas_before) for p in decision.mix)]
    if observed is not None and observed.mix:
        shown = {part.offer: part.replicas for part in observed.mix}
        more += ((part.replicas, shown.get(part.offer, 0)) for part in decision.mix)
    return "" if any(after > before for after, before in more) else None


def tenant_mixed(context: Context) -> Verdict | None:
    """Refuse a decision that may start a replica on an undivided GPU beside another tenant's.

    A replica that requests a share of a GPU may come to any that is free, or on which another does; one that requests
    whole GPUs only to a GPU to which the platform has put several, and on a named node also to one that several use.
    Where no node is named, or the platform may choose another, it may be any of the cell. Others' replicas are those in
    the inventories, and those that decisions of the last ``UNSEEN_S`` seconds may start. An undeclared workload counts
    as another tenant's.
    """
    named = starts_on(context)
    if context.pool is not None or named is None or not _gpus_of(context.world, context.decision.workload):
        return None
    gpus = [*_gpus(context, named)]
    return next(_beside_shown(context, gpus), None) or next(_beside_started(context, gpus), None)


def _beside_shown(context: Context, gpus: Iterable[tuple[str, Gpu]]) -> Iterator[Verdict]:
    for node, gpu in gpus:
        for other in gpu.workloads:
            if _is_of_another(context, other):
                yield _refusal(context, f"workload {other!r} of {_whose(context, other)} shares", node, "divide")


def _beside_started(context: Context, gpus: Sequence[tuple[str, Gpu]]) -> Iterator[Verdict]:
    cell = context.decision.cell
    now_ns = context.state.clock(cell, context.now_ns)
    for grant in within(context.state.grants.get(cell, ()) if gpus else (), now_ns, UNSEEN_S):
        other, uses = grant.workload, _gpus_of(context.world, grant.workload)
        if grant.starts is not None and uses and _is_of_another(context, other):
            takes_part = not _whole(context.world, grant.workload)
            for node, gpu in gpus:
                if grant.starts in ("", node) and _may_come(context.world, gpu, takes_part):
                    who = (
                        f"a replica of {other!r} of {_whose(context, other)}, by decision {grant.decision}, may come to"
                    )
                    yield _refusal(context, who, node, "wait until the inventories show it, divide")


def _refusal(context: Context, who: str, node: str, remedy: str) -> Verdict:
    decision, tenant = context.decision, context.world.tenant(context.decision.workload)
    return refuse(
        "tenant_mixed",
        f"{who} a GPU of node {node!r} that MIG does not divide, and a replica of {decision.workload!r} of tenant "
        f"{tenant!r} may come beside it; {remedy} the GPU, keep the tenants on nodes of their own, or declare both as "
        "one tenant's",
    )


def _gpus(context: Context, named: str) -> Iterator[tuple[str, Gpu]]:
    """Undivided GPUs to which a replica may come: of the named node, or of all that take work in the cell."""
    world, cell = context.world, context.decision.cell
    takes_part = not _whole(world, context.decision.workload)
    for node in [named] if named else [name for name, of in world.nodes.items() if of.cell == cell and of.schedulable]:
        for gpu in world.gpus.get(node, ()):
            if _may_come(world, gpu, takes_part) or (named and len(gpu.workloads) > 1):
                yield node, gpu


def _may_come(world: World, gpu: Gpu, takes_part: bool) -> bool:
    """Whether the platform may put a replica on a GPU, beside those that are on it."""
    return gpu.shared or (takes_part and (len(gpu.workloads) != 1 or not _whole(world, *gpu.workloads)))


def _is_of_another(context: Context, other: str) -> bool:
    workload, world = context.decision.workload, context.world
    return other != workload and world.tenant(other) != world.tenant(workload)


def _whole(world: World, *workloads: str) -> bool:
    """Whether all of them request whole GPUs; an undeclared one does."""
    return all(_gpus_of(world, workload).is_integer() for workload in workloads)


def _gpus_of(world: World, workload: str) -> float:
    spec = world.workloads.get(workload)
    return 1.0 if spec is None else float(spec.gpus_per_replica)


def _whose(context: Context, workload: str) -> str:
    tenant = context.world.tenant(workload)
    return f"tenant {tenant!r}" if tenant else "an unknown tenant"
