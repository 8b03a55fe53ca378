"""Time checks: the decision is neither too old nor in the future, and no newer one has been seen."""

from flyball_actuators.guard.state import Context, Verdict, refuse

MAX_AHEAD_S = 60.0


def expired(context: Context) -> Verdict | None:
    """Refuse from ``expires_ns`` on, and once older than ``max_age_s`` whatever ``expires_ns`` is."""
    late_ns = context.now_ns - context.decision.expires_ns
    if late_ns >= 0:
        return refuse(
            "expired",
            f"expired {late_ns / 1e9:.3f} s ago; decide again on present data",
        )
    age_s = (context.now_ns - context.decision.time_ns) / 1e9
    if age_s <= context.config.max_age_s:
        return None
    return refuse(
        "expired",
        f"decided {age_s:.3f} s ago, and nothing older than {context.config.max_age_s:g} s is carried out; "
        "decide again on present data",
    )


def not_yet_valid(context: Context) -> Verdict | None:
    """Refuse a decision whose time is further in the future than clocks may differ."""
    ahead_s = (context.decision.time_ns - context.now_ns) / 1e9
    if ahead_s <= MAX_AHEAD_S:
        return None
    return refuse(
        "not_yet_valid",
        f"decided {ahead_s:.3f} s from now; at most {MAX_AHEAD_S:.0f} s is allowed: synchronise the clocks",
    )


def superseded(context: Context) -> Verdict | None:
    """Supersede a decision that is older than one already seen for the same subject."""
    newest = context.state.newest.get(context.decision.subject)
    if newest is None or newest <= context.decision.time_ns:
        return None
    behind_s = (newest - context.decision.time_ns) / 1e9
    return Verdict("superseded", "stale", f"a decision {behind_s:.3f} s newer about the same target was seen before")
