"""Decisions, their effects and their outcomes, as text."""

from collections.abc import Callable, Sequence

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, Effect, Outcome, SubjectState, Wording
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.journal import Verdict, verdict
from flyball_streams.dashboard.text import number, quantity, signed, span

_LABELS: dict[Verdict, str] = {"awaiting": "awaiting outcome", "planned": "planned, not carried out"}


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
    """Name, text and whether it is welcome of each expected effect that was estimated; no change is neither."""
    found: list[tuple[str, str, bool | None]] = []
    if effect.cost_usd_per_hour is not None:
        cost = effect.cost_usd_per_hour
        found.append(("cost", f"{signed(cost)} $/h", _welcome(-cost)))
    if effect.carbon_g_per_hour is not None:
        grams = effect.carbon_g_per_hour
        text = f"{signed(grams / 1000)} kg" if abs(grams) >= 1000 else f"{signed(grams)} g"
        found.append(("carbon", f"{text} CO₂e/h", _welcome(-grams)))
    if effect.power_w is not None:
        watts = effect.power_w
        text = f"{signed(watts / 1000)} kW" if abs(watts) >= 1000 else f"{signed(watts)} W"
        found.append(("power", text, None))
    if effect.gpus is not None:
        found.append(("GPUs", signed(effect.gpus), None))
    if effect.slo is not None:
        found.append(("SLO", f"{signed(100 * effect.slo)} pp", _welcome(effect.slo)))
    return found


def _welcome(gain: float) -> bool | None:
    return gain > 0 if gain else None


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
    fields: tuple[tuple[str, str, float, str], ...] = (
        ("cost", "cost_usd_per_hour", 1.0, "$/h"),
        ("carbon", "carbon_g_per_hour", 1e-3, "kgCO₂e/h"),
        ("power", "power_w", 1e-3, "kW"),
        ("GPUs", "gpus", 1.0, ""),
        ("requests in time", "slo", 100.0, "pp"),
    )
    rows: list[tuple[str, str, str]] = []
    for name, attribute, factor, unit in fields:
        wanted: float | None = getattr(expected, attribute)
        seen: float | None = getattr(observed, attribute) if observed is not None else None
        if wanted is not None or seen is not None:
            amounts = ["not estimated" if wanted is None else f"{signed(factor * wanted)} {unit}".rstrip()]
            amounts.append("not observed" if seen is None else f"{signed(factor * seen)} {unit}".rstrip())
            rows.append((name, amounts[0], amounts[1]))
    return rows


def state_rows(states: Sequence[SubjectState | None]) -> list[tuple[str, list[str]]]:
    """Name, and value in each state, of every property that any of them has; empty text where it is missing."""
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
