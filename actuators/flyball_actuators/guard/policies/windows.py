"""Maintenance windows and freezes, in their own time zone."""

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from flyball_actuators.guard.state import Context, Verdict, refuse
from flyball_contracts.config import GuardPolicy, Span, Window
from flyball_contracts.config.policies import WEEK_MIN


def out_of_hours(context: Context) -> Verdict | None:
    """Refuse outside a policy's ``only_during``, and within its ``never_during``."""
    for policy in context.policies:
        verdict = _closed(policy, context.now_ns) if policy.only_during or policy.never_during else None
        if verdict is not None:
            return verdict
    return None


def _closed(policy: GuardPolicy, now_ns: int) -> Verdict | None:
    now = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
    for window in policy.windows(policy.never_during):
        for span in _spans(window):
            since_min = _since(span, now, window)
            if since_min < span.length_min:
                end = _later(now, window, span.length_min - since_min)
                return refuse(
                    "window", f"policy {policy.name!r} allows nothing until {end}; wait, or end the freeze", policy.name
                )
    allowed = policy.windows(policy.only_during)
    if not allowed or any(
        _since(span, now, window) < span.length_min
        for window in policy.windows(policy.only_during)
        for span in _spans(window)
    ):
        return None
    wait_min, window = min(
        (
            (WEEK_MIN - _since(span, now, window), window)
            for window in policy.windows(policy.only_during)
            for span in _spans(window)
        ),
        key=lambda found: found[0],
    )
    opens = _later(now, window, wait_min)
    return refuse(
        "window", f"policy {policy.name!r} allows this from {opens} on; wait, or widen its only_during", policy.name
    )


@cache
def _spans(window: Window) -> tuple[Span, ...]:
    return window.spans


def _since(span: Span, now: datetime, window: Window) -> int:
    """Whole minutes since a span last began, in the local week.

    Daylight saving shifts a span as it shifts local clocks.
    """
    local = now.astimezone(ZoneInfo(window.zone))
    return ((local.weekday() * 24 + local.hour) * 60 + local.minute - span.first_min) % WEEK_MIN


def _later(now: datetime, window: Window, minutes: int) -> str:
    then = now.astimezone(ZoneInfo(window.zone)) + timedelta(minutes=minutes)
    return f"{then:%a %H:%M} ({window.zone})"
