"""Compare-and-set: compares a decision's assumptions with the observed state, before anything is submitted."""

from flyball_actuators.guard.state import Context, Verdict, refuse


def conflict(context: Context) -> Verdict | None:
    """Refuse a decision that, on the observed state, would do the opposite of what it states, or more."""
    if context.observed is None:
        return None
    problem = context.decision.conflict(context.observed, context.assumed)
    return refuse("conflict", f"{problem}; decide again on what runs now") if problem else None
