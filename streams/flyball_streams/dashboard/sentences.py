"""Decisions, their effects and their outcomes, as text."""

from collections.abc import Callable, Sequence

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, Effect, Outcome, SubjectState, Wording
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.journal import Verdict, verdict
from flyball_streams.dashboard.text import number, quantity, signed, span

_LABELS: dict[Verdict, str] = {"awaiting": "awaiting outcome", "planned": "planned, not carried out"}
_EFFECTS = (
    ("cost", "cost_usd_per_hour", 1.0, "$/h", -1),
    ("carbon", "carbon_g_per_hour", 1e-3, "kgCO₂e/h", -1),
    ("power", "power_w", 1e-3, "kW", 0),
    ("GPUs", "gpus", 1.0, "", 0),
    ("requests in time", "slo", 100.0, "pp", 1),
)
"""Name, field, factor and unit of each effect, and the sign of a welcome change (0: neither sign)."""


def wording(prefs: Preferences, device: Callable[[str], str] | None = None) -> Wording:
    """How the page writes a decision; ``device`` gives a device's place by its id."""

    def clock(time_ns: int) -> str:
        return prefs.clock(time_ns, day=True)

    def place(name: str, node: str) -> str:
        return f"{name} of {node}" if device is None else device(name)

    return Wording(clock, place)


def change(decision: AnyDecision, prefs: Preferences) -> str:
    """What a decision does, in a few words."""
    return decision.change(wording(prefs))


def effects(effect: Effect) -> list[tuple[str, str, bool | None]]:
    """Name and text of each estimated effect, and whether it is welcome (``None``: it is neither, or no change)."""
    values = {name: getattr(effect, field) for name, field, _, _, _ in _EFFECTS}
    return [
        (name, _amount(values[name], factor, unit), good * values[name] > 0 if good * values[name] else None)
        for name, _, factor, unit, good in _EFFECTS
        if values[name] is not None
    ]


def outcome_text(outcome: Outcome | None) -> tuple[Verdict, str]:
    """Style and text of a decision's outcome."""
    style = verdict(outcome)
    label = _LABELS.get(style, style)
    if outcome is None or style == "planned":
        return style, label
    if outcome.status == "refused" and outcome.code:
        label = f"refused: {outcome.code.replace('_', ' ')}"
    return style, f"{label}, dry run" if outcome.mode == "dry_run" else label


def step(outcome: Outcome, decided_ns: int) -> str:
    """One step of a decision's life cycle, as a sentence without its time."""
    by = f" by {outcome.actuator}" if outcome.actuator else ""
    work = f" ({outcome.operation})" if outcome.operation not in ("", outcome.decision) else ""
    delay = outcome.effect_after_s
    late_s = (outcome.time_ns - decided_ns) / NS_PER_S
    match verdict(outcome):
        case "accepted" if outcome.mode == "dry_run":
            text = f"Accepted{by} for a dry run"
        case "accepted":
            text = f"Accepted{by} for the platform ({outcome.driver})"
        case "running":
            text = f"The platform works on it{work}"
        case "done":
            text = "Done: the platform shows the effect"
            late_s = late_s if delay is None else delay
        case "planned":
            text = "Planned against the real state and not carried out, because the actuator runs dry"
        case "failed":
            text = f"Failed on the platform ({outcome.driver})"
        case "refused":
            text = f"Refused{by} ({outcome.code.replace('_', ' ') or 'no reason given'})"
        case "superseded":
            text = "Given up for a newer decision about the same subject"
        case "awaiting":
            text = ""
    late = f", {span(late_s)} after the decision" if late_s > 0 else ""
    detail = "; ".join(part for part in (outcome.detail, outcome.answer) if part)
    return f"{text}{late}{f': {detail}' if detail else ''}."


def effect_rows(expected: Effect, observed: Effect | None) -> list[tuple[str, str, str]]:
    """Name, expected and observed value of each effect that was estimated or observed."""
    rows: list[tuple[str, str, str]] = []
    for name, field, factor, unit, _ in _EFFECTS:
        wanted, seen = getattr(expected, field), getattr(observed, field, None)
        if wanted is not None or seen is not None:
            texts = (_amount(wanted, factor, unit) or "not estimated", _amount(seen, factor, unit) or "not observed")
            rows.append((name, *texts))
    return rows


def _amount(value: float | None, factor: float, unit: str) -> str:
    return "" if value is None else f"{signed(factor * value)} {unit}".rstrip()


def state_rows(states: Sequence[SubjectState | None]) -> list[tuple[str, list[str]]]:
    """Name of each property that any state has, and its value in each state; empty text where it is missing."""
    rows = [_state(state) for state in states]
    names = dict.fromkeys(name for state in rows for name in state)
    return [(name, [state.get(name, "") for state in rows]) for name in names]


def _state(state: SubjectState | None) -> dict[str, str]:
    if state is None:
        return {}
    rows: dict[str, str] = {}
    if state.replicas is not None:
        rows["replicas asked for"] = number(state.replicas)
    if state.ready is not None:
        rows["replicas that serve"] = number(state.ready)
    for replica, node in state.nodes.items():
        rows[f"node of {replica}"] = node or "stopped"
    if state.power_limit_w is not None:
        rows["power limit"] = quantity(state.power_limit_w, "W")
    if state.resources is not None:
        rows["resources"] = state.resources.change()
    if state.mix:
        rows["machines"] = ", ".join(f"{part.replicas} on {part.offer}" for part in state.mix)
    if state.suspended is not None:
        rows["suspended"] = "yes" if state.suspended else "no"
    return rows
