"""Compare-and-set: compares a decision's assumptions with the observed state, before anything is submitted."""

from flyball_actuators.guard.state import Context, Verdict, refuse
from flyball_contracts.records import Check, Migrate, Preempt, Scale, SubjectState


def conflict(context: Context) -> Verdict | None:
    """Refuse a decision that, on the observed state, would do the opposite of what it states, or more."""
    decision, observed = context.decision, context.observed
    if observed is None:
        return None
    if isinstance(decision, Check):
        problem = ""  # the platform closes a node that is open
    elif isinstance(decision, Migrate):
        problem = _place(decision, observed)
    else:
        problem = _count(decision, observed, context.assumed)
    if isinstance(decision, Scale) and not problem:
        problem = _resources(decision, observed)
    return refuse("conflict", f"{problem}; decide again on what runs now") if problem else None


def _count(decision: Scale | Preempt, observed: SubjectState, assumed: tuple[int, ...]) -> str:
    """Compare with both requested and ready replicas: a decision may have assumed either, or a number in between.

    A decision also replaces those that it superseded before they were submitted (``assumed``): their changes are part
    of it.
    """
    shown = [n for n in (observed.replicas, observed.ready) if n is not None]
    before, after = decision.replicas_before, decision.replicas
    if isinstance(decision, Preempt) and shown and after > shown[0]:
        return f"{after} replicas should stay, but the platform shows {shown[0]}: a preemption must never start any"
    starts = [before]
    if after != before or not shown or after <= min(shown):  # nothing says what it costs to start more than none
        starts += assumed
    if not shown or any(_harmless(start, after, min(shown), max(shown)) for start in starts):
        return ""
    nearest = max(shown) if before > max(shown) else min(shown)
    change = after - nearest
    does = f"start {change}" if change > 0 else f"stop {-change}" if change < 0 else "change nothing"
    return f"from {before} to {after} replicas was decided, but the platform shows {nearest}: it would {does}"


def _harmless(before: int, after: int, least: int, most: int) -> bool:
    """Whether the change does what it states, or less, when ``least`` to ``most`` replicas are observed."""
    if least <= before <= most:
        return True
    return after <= most if before > most else after >= least


def _place(migrate: Migrate, observed: SubjectState) -> str:
    node = observed.nodes.get(migrate.replica)
    if node is None or node == migrate.from_node:
        return ""
    where = f"runs on {node!r}" if node else "is stopped"
    return f"replica {migrate.replica!r} {where}, not on {migrate.from_node!r} from where it should move"


def _resources(scale: Scale, observed: SubjectState) -> str:
    if scale.resources is None or scale.resources_before is None or observed.resources is None:
        return ""
    for name in ("cpu", "memory_bytes", "gpu_profile"):
        wanted, was = getattr(scale.resources, name), getattr(scale.resources_before, name)
        shown = getattr(observed.resources, name)
        if wanted is not None and was is not None and shown is not None and shown not in (was, wanted):
            return f"resources.{name} was taken to be {was}, but the platform shows {shown}"
    return ""
