"""Describes in a sentence what a decision requests."""

from flyball_contracts.cloudevents import rfc3339
from flyball_contracts.records import AnyDecision, Check, Migrate, Resources, Scale
from flyball_contracts.records.pools import pool_of


def describe(decision: AnyDecision) -> str:
    """The decision as a past participle: ``scaled target ... from 4 to 6 replicas``."""
    pool = pool_of(decision.workload)
    about = f"pool {pool!r}" if pool else f"workload {decision.workload!r}"
    target = f"target {decision.target!r} ({about}, cell {decision.cell!r})"
    if isinstance(decision, Scale) and decision.resources is not None:
        changes = _changes(decision.resources, decision.resources_before or Resources())
        return f"set {changes} for each of the {decision.replicas} replicas of {target}"
    if isinstance(decision, Scale):
        power = "" if decision.power_limit_w is None else f" with a power limit of {decision.power_limit_w:g} W"
        mix = f": {', '.join(f'{p.replicas} on {p.offer}' for p in decision.mix)}" if decision.mix else ""
        what = "machines" if pool else "replicas"
        mix += f" ({', '.join(decision.victims)})" if decision.victims else ""
        return f"scaled {target} from {decision.replicas_before} to {decision.replicas} {what}{power}{mix}"
    if isinstance(decision, Migrate):
        place = f"to node {decision.to_node!r}" if decision.to_node else "to a node of the scheduler's choice"
        device = f"device {decision.from_device!r} of " if decision.from_device else ""
        return f"migrated replica {decision.replica!r} of {target} from {device}node {decision.from_node!r} {place}"
    if isinstance(decision, Check):
        gpus = f" with GPUs {', '.join(decision.devices)}" if decision.devices else ""
        return f"checked node {decision.node!r} of cell {decision.cell!r}{gpus}, and opened it where it passes"
    how = "after a checkpoint" if decision.checkpoint else "without a checkpoint"
    until = "until there is room" if decision.until_ns is None else f"until {rfc3339(decision.until_ns)}"
    room = f" to make room for {decision.beneficiary!r}" if decision.beneficiary else ""
    which = f" ({', '.join(decision.victims)})" if decision.victims else ""
    change = f"from {decision.replicas_before} to {decision.replicas} replicas{which}"
    return f"preempted {target} {change} {how}, {until}{room}"


def _changes(wanted: Resources, before: Resources) -> str:
    parts = [
        f"{what} to {new:{form}}" + ("" if old is None else f" instead of {old:{form}}")
        for what, form, new, old in (
            ("CPU cores", "g", wanted.cpu, before.cpu),
            ("bytes of memory", ",d", wanted.memory_bytes, before.memory_bytes),
            ("part of a GPU", "s", wanted.gpu_profile, before.gpu_profile),
        )
        if new is not None
    ]
    return " and ".join(parts)
