"""Checks of time: not too late or too early, and still the latest word."""

from flyball_actuators.guard.state import Case, Verdict, refuse, subject_of

MAX_AHEAD_S = 60.0


def expired(case: Case) -> Verdict | None:
    """Refuse from ``expires_ns`` on, and beyond ``max_age_s`` whatever that says."""
    late_ns = case.now_ns - case.decision.expires_ns
    if late_ns >= 0:
        return refuse(
            "expired",
            f"expired {late_ns / 1e9:.3f} s ago (expires_ns {case.decision.expires_ns}); "
            "decide again on present data, or raise worker.decision_ttl_s",
        )
    age_s = (case.now_ns - case.decision.time_ns) / 1e9
    if age_s <= case.config.max_age_s:
        return None
    return refuse(
        "expired",
        f"decided {age_s:.3f} s ago, and nothing older than {case.config.max_age_s:g} s is carried out; "
        "decide again on present data",
    )


def not_yet_valid(case: Case) -> Verdict | None:
    """Refuse a decision whose time lies further ahead than clocks may differ."""
    ahead_s = (case.decision.time_ns - case.now_ns) / 1e9
    if ahead_s <= MAX_AHEAD_S:
        return None
    return refuse(
        "not_yet_valid",
        f"decided {ahead_s:.3f} s from now; at most {MAX_AHEAD_S:.0f} s is allowed: synchronise the clocks",
    )


def superseded(case: Case) -> Verdict | None:
    """Pass over a decision that is older than one already seen about the same thing."""
    newest = case.state.newest.get(subject_of(case.decision))
    if newest is None or newest <= case.decision.time_ns:
        return None
    behind_s = (newest - case.decision.time_ns) / 1e9
    return Verdict("superseded", "stale", f"a decision {behind_s:.3f} s newer about the same target was seen before")
