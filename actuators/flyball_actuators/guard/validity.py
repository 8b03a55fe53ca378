"""Checks that a decision is consistent with its subject; runs after the target is known."""

import math

from flyball_actuators.guard.money import pool_size
from flyball_actuators.guard.power import power_limit
from flyball_actuators.guard.state import Context, Verdict, World, refuse
from flyball_contracts.records import Check, Migrate, Preempt, Resources, Scale, WorkloadSpec
from flyball_contracts.records.nodes import subject_of_node


def invalid(context: Context) -> Verdict | None:
    """Refuse a decision that contradicts the workload's specification or itself."""
    decision = context.decision
    if not decision.id:
        problem = "id is empty; a decision must have one, or it could be carried out twice"
    elif decision.target != f"{decision.cell}/{decision.workload}":
        problem = (
            f"target {decision.target!r} is not workload {decision.workload!r} of cell {decision.cell!r}; it must be "
            f"'{decision.cell}/{decision.workload}'"
        )
    elif isinstance(decision, Check):
        problem = _check(decision)
    elif context.pool is not None:
        problem = pool_size(decision, context.pool)
    elif isinstance(decision, Scale):
        problem = _scale(decision, context.world.workloads[decision.workload]) or power_limit(decision, context.world)
    elif isinstance(decision, Preempt):
        problem = _preempt(decision, context.world.workloads[decision.workload]) or _owned_by_other(
            decision, decision.victims, context.world
        )
    else:
        problem = _migrate(decision, context.world) or _owned_by_other(decision, (decision.replica,), context.world)
    return refuse("invalid", problem) if problem else None


def _scale(scale: Scale, spec: WorkloadSpec) -> str:
    if scale.replicas_before < 0:
        return f"replicas_before is {scale.replicas_before}; it must not be negative"
    if scale.resources is not None:
        return _resources(scale, scale.resources)
    if not max(0, spec.min_replicas) <= scale.replicas <= spec.max_replicas:
        return (
            f"{scale.replicas} replicas lie outside {spec.min_replicas} to {spec.max_replicas}, the range of "
            f"workload {spec.workload!r}; change its min_replicas or max_replicas"
        )
    if scale.mix:
        return _mix(scale)
    return ""


def _mix(scale: Scale) -> str:
    names = [part.offer for part in scale.mix]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        return f"mix names offer {duplicates[0]!r} twice; name each once"
    if any(part.replicas < 0 or part.replicas_before < 0 for part in scale.mix):
        return "mix has an offer with less than no replicas; none must be negative"
    total = sum(part.replicas for part in scale.mix)
    if total > scale.replicas:
        return f"mix has {total} replicas in all where the decision has {scale.replicas}; it must not have more"
    return ""


def _resources(scale: Scale, wanted: Resources) -> str:
    if scale.replicas != scale.replicas_before:
        return (
            f"resources come with {scale.replicas} replicas instead of {scale.replicas_before}; "
            "change one of the two at a time"
        )
    if wanted.cpu is None and wanted.memory_bytes is None and not wanted.gpu_profile:
        return "resources name nothing to change; give cpu, memory_bytes or gpu_profile"
    for name, value in (("cpu", wanted.cpu), ("memory_bytes", wanted.memory_bytes)):
        if value is not None and not 0 < value < math.inf:
            return f"resources.{name} is {value}; it must be positive"
    return ""


def _preempt(preempt: Preempt, spec: WorkloadSpec) -> str:
    if not spec.interruptible:
        return f"workload {spec.workload!r} is not interruptible; its owner must set interruptible to allow this"
    if not 0 <= preempt.replicas < preempt.replicas_before:
        return (
            f"{preempt.replicas} replicas of {preempt.replicas_before} stay; a preemption must take some away, "
            "and leave none or more"
        )
    if preempt.replicas > spec.max_replicas:
        return (
            f"{preempt.replicas} replicas would stay, and workload {spec.workload!r} runs at most "
            f"{spec.max_replicas}; leave fewer, or change its max_replicas"
        )
    if preempt.replicas < spec.min_replicas:
        return (
            f"{preempt.replicas} replicas would stay, and workload {spec.workload!r} keeps at least "
            f"{spec.min_replicas}; leave those, or change its min_replicas"
        )
    going = preempt.replicas_before - preempt.replicas
    if len(set(preempt.victims)) != len(preempt.victims) or len(preempt.victims) > going:
        return f"{len(preempt.victims)} victims are named for {going} replicas to go; name at most that many, each once"
    if preempt.until_ns is not None and preempt.until_ns <= preempt.time_ns:
        return "until_ns is not after time_ns; the pause would be over before it began"
    return ""


def _check(check: Check) -> str:
    if check.workload != subject_of_node(check.node):
        return (
            f"workload is {check.workload!r}; that of a check of node {check.node!r} is {subject_of_node(check.node)!r}"
        )
    if check.attempt < 1:
        return f"attempt is {check.attempt}; checks are counted from 1"
    return ""


def _migrate(migrate: Migrate, world: World) -> str:
    if not migrate.replica:
        return "replica is empty; a migration must name the replica that it moves"
    if migrate.to_node == migrate.from_node:
        return f"from_node and to_node are both {migrate.to_node!r}; leave to_node empty to let the scheduler choose"
    if migrate.to_node and not world.nodes[migrate.to_node].schedulable:
        return f"to_node {migrate.to_node!r} is drained; choose another, or leave it empty"
    return ""


def _owned_by_other(decision: Migrate | Preempt, replicas: tuple[str, ...], world: World) -> str:
    for replica in replicas:
        owner = world.owner(decision.cell, decision.workload, replica)
        if owner:
            return f"replica {replica!r} belongs to workload {owner!r}, not {decision.workload!r}; name one of its own"
    return ""
