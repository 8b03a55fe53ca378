"""Rate and blast-radius limits; they count granted decisions, never refused ones."""

from bisect import bisect_right
from collections.abc import Sequence
from math import floor
from operator import attrgetter

from flyball_actuators.guard.grants import GrantIndex, RecentGrants
from flyball_actuators.guard.state import Context, Grant, Verdict, World, refuse, unproven, urgency_of
from flyball_actuators.parameters import ActuatorParameters, RateParameters
from flyball_contracts.config import ActuatorConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.records import AnyDecision

_at_ns = attrgetter("at_ns")
UNSEEN_S = 600.0
"""Inventories may take this long to show the replicas of a decision that was let through: longer than a rollout."""


def rate(context: Context) -> Verdict | None:
    """Refuse above ``actuator.per_target`` or ``actuator.per_cell``."""
    decision, limits = context.decision, context.config
    now_ns = context.state.clock(decision.cell, context.now_ns)
    granted, urgency = index_of(context), urgency_of(decision)
    of_target, of_cell = granted.of_urgency(urgency, decision.target), granted.of_urgency(urgency)
    verdict = _too_many(of_target, now_ns, limits.per_target, "per_target", f"target {decision.target!r}") or _too_many(
        of_cell, now_ns, limits.per_cell, "per_cell", f"cell {decision.cell!r}"
    )
    return None if verdict is None else verdict._replace(detail=verdict.detail + unproven(decision))


def blast_radius(context: Context) -> Verdict | None:
    """Refuse if the replicas taken away in the window would exceed ``actuator.blast_radius``.

    Rescues from failing devices have a separate limit of the same size, and so have deferrals: price and carbon never
    use up the limit of urgent decisions.
    """
    decision, limit = context.decision, context.config.blast_radius
    takes = context.takes
    if not takes:
        return None
    room = blast_room(context)
    if least_of(decision, takes) <= room:
        return None
    cap = cap_of(context.config, decision.cell, context.world)
    return refuse(
        "blast_radius",
        f"takes away {takes} replicas after {cap - room} in the last {limit.window_s:g} s; actuator.blast_radius "
        f"allows cell {decision.cell!r} {cap}: {remedy(room)}, or raise its share ({limit.share:g}), replicas "
        f"({limit.replicas}) or most ({limit.most}){unproven(decision)}",
        allowed=room,
    )


def blast_room(context: Context) -> int:
    """Replicas that may still be taken from the cell in the window, by decisions as urgent as this one."""
    decision, limit = context.decision, context.config.blast_radius
    now_ns = context.state.clock(decision.cell, context.now_ns)
    granted = index_of(context).of_urgency(urgency_of(decision))
    before = sum(grant.taken for grant in within(granted, now_ns, limit.window_s))
    return cap_of(context.config, decision.cell, context.world) - before


def least_of(decision: AnyDecision, takes: int) -> int:
    """Replicas for which a limit must have room: one, if the platform can carry out a part."""
    return min(takes, 1) if decision.in_batches else takes


def remedy(room: int) -> str:
    """What to do if a limit has room for fewer replicas than requested."""
    return f"wait, take at most {room} now" if room > 0 else "wait"


def cap_of(config: ActuatorConfig, cell: str, world: World) -> int:
    """Most replicas that may be taken from a cell in one window.

    It is a share of the replicas in the inventories, at least ``replicas`` and at most ``most`` of the configuration.
    """
    known, limit = sum(map(len, world.placed.get(cell, {}).values())), config.blast_radius
    return min(max(floor(limit.share * known), limit.replicas), limit.most)


def pruned(grants: Sequence[Grant], now_ns: int, config: ActuatorConfig) -> tuple[Grant, ...]:
    """The grants that a limit can still count."""
    return tuple(within(grants, now_ns, longest_s(config)))


def longest_s(section: ActuatorConfig) -> float:
    """How long a grant can count, in seconds."""
    config = with_constants(ActuatorParameters, section)
    of_policies = (limit.window_s for policy in config.policies for limit in policy.limits)
    return max(
        config.per_target.window_s, config.per_cell.window_s, config.blast_radius.window_s, UNSEEN_S, *of_policies
    )


def index_of(context: Context) -> GrantIndex:
    """Grants of the decision's cell."""
    context.granted.update(context.state.grants.get(context.decision.cell, ()), context.world.summed().declared)
    return context.granted


def recent_of(context: Context) -> RecentGrants:
    """Grants of the decision's cell in the last ``UNSEEN_S`` seconds, which inventories may not show yet."""
    index, now_ns = index_of(context), context.state.clock(context.decision.cell, context.now_ns)
    index.recent.update(tuple(within(index.grants, now_ns, UNSEEN_S)), context.world.summed().declared)
    return index.recent


def within(grants: Sequence[Grant], now_ns: int, window_s: float) -> Sequence[Grant]:
    """The grants of the last ``window_s`` seconds; ``grants`` are in order of time."""
    return grants[bisect_right(grants, now_ns - round(window_s * 1e9), key=_at_ns) :]


def _too_many(grants: Sequence[Grant], now_ns: int, limit: RateParameters, key: str, what: str) -> Verdict | None:
    recent = within(grants, now_ns, limit.window_s)
    if len(recent) < limit.actions:
        return None
    free_s = (recent[-limit.actions].at_ns - now_ns) / 1e9 + limit.window_s
    return refuse(
        "rate",
        f"{what} had {len(recent)} actions in the last {limit.window_s:g} s and actuator.{key} allows "
        f"{limit.actions}; there is room again in {free_s:.3f} s",
    )
