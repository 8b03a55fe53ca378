"""Bounds of a power limit, from the limits that inventories report for the GPUs that it applies to."""

from flyball_actuators.guard.state import World
from flyball_contracts.records import AnyDecision, Scale

LEAST_SHARE = 1 / 3
"""Share of the largest known limit; below it GPUs hardly work, and some drivers refuse it."""


def power_limit(decision: AnyDecision, world: World) -> str:
    """Error in a decision's power limit; empty if there is none."""
    limit_w = decision.power_limit_w if isinstance(decision, Scale) else None
    if limit_w is None:
        return ""
    most_w = world.power_w.get(decision.cell, {}).get(decision.workload)
    if most_w is None:
        return (
            f"power_limit_w is {limit_w:g}, and no inventory reports the power limits of the GPUs where workload "
            f"{decision.workload!r} runs; leave it out, or let the agents of its nodes report them first"
        )
    least_w = LEAST_SHARE * most_w
    if least_w <= limit_w <= most_w:
        return ""
    return (
        f"power_limit_w is {limit_w:g}; the GPUs where workload {decision.workload!r} runs take {least_w:g} to "
        f"{most_w:g} W, from a third of the largest limit known to all of it: choose one between"
    )
