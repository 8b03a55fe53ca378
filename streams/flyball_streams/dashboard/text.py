"""Numbers, units and decisions as words."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import (
    AnyDecision,
    Effect,
    Evidence,
    Migrate,
    Outcome,
    Portion,
    Preempt,
    Resources,
    Scale,
)

_UNITS = {"1": "", "Cel": "°C", "By": "B", "gCO2e/kWh": "g/kWh"}
_ANNOTATION = re.compile(r"\{([^}]*)\}")
_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MINUS = "\N{MINUS SIGN}"
UNKNOWN = "\N{EN DASH}"


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits and an SI prefix from ten thousand on; an en dash for what is unknown."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    size = abs(value)
    if size >= 10_000:
        for step, prefix in _STEPS:
            if size >= step:
                return f"{_plain(value / step, digits)} {prefix}"
    return _plain(value, digits)


def _plain(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 6)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS)


def signed(value: float) -> str:
    """A number with its sign."""
    return f"+{number(value)}" if value > 0 else number(value)


def quantity(value: float | None, unit: str) -> str:
    """A number with its UCUM unit as people write it."""
    shown = _UNITS.get(unit, _ANNOTATION.sub(r"\1", unit))
    if _ANNOTATION.fullmatch(unit):
        shown = ""  # what is counted is in the name
    text = number(value)
    if text == UNKNOWN or not shown:
        return text
    prefixed = text[-1] in "kMGT"  # the prefix belongs to the unit: 1.98 GHz
    return f"{text}{shown}" if prefixed else f"{text} {shown}"


def percent(ratio: float | None, digits: int = 0) -> str:
    """A ratio as a percentage."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    return f"{100 * ratio:.{digits}f} %".replace("-", MINUS)


def clock(time_ns: int | None, *, day: bool = False) -> str:
    """Event time in UTC, to the second, or day and minute with ``day``."""
    if not time_ns:
        return UNKNOWN
    when = datetime.fromtimestamp(time_ns // NS_PER_S, UTC)
    return f"{when:%d %b %H:%M}" if day else f"{when:%H:%M:%S}"


def span(seconds: float) -> str:
    """A duration in its largest fitting unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{number(seconds / size, 2)} {unit}"
    return f"{number(seconds, 2)} s"


def short_name(metric: str) -> str:
    """A metric's key without its namespace: ``hw.temperature{sensor=gpu}`` is ``temperature (gpu)``."""
    name, _, attributes = metric.partition("{")
    for prefix in ("hw.gpu.", "hw.", "nvidia.gpu.", "system.", "flyball.workload."):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    values = [pair.partition("=")[2] for pair in attributes.rstrip("}").split(",") if "=" in pair]
    words = name.replace(".", " ").replace("_", " ")
    return f"{words} ({', '.join(values)})" if values else words


def shown_evidence(item: Evidence) -> str:
    """One number of the evidence: its name, value, and what was expected."""
    text = f"{short_name(item.name)} {quantity(item.value, item.unit)}"
    return text if item.expected is None else f"{text}, expected {quantity(item.expected, item.unit)}"


def change(decision: AnyDecision) -> str:
    """What a decision does, in a few characters."""
    arrow = "\N{RIGHTWARDS ARROW}"
    match decision:
        case Scale(resources=Resources() as wanted):
            return resize(wanted, decision.resources_before)
        case Scale():
            limit = f", limit {quantity(decision.power_limit_w, 'W')}" if decision.power_limit_w else ""
            where = f" ({mixture(decision.mix)})" if decision.mix else ""
            return f"{decision.replicas_before} {arrow} {decision.replicas} replicas{limit}{where}"
        case Migrate():
            return f"{arrow} {decision.to_node or 'any healthy node'}"
        case Preempt():
            until = f" until {clock(decision.until_ns, day=True)}" if decision.until_ns else ""
            return f"{decision.replicas_before} {arrow} {decision.replicas} replicas{until}"


def resize(wanted: Resources, before: Resources | None) -> str:
    """What each replica is to ask for instead of what it has, in a few characters."""
    before = before or Resources()
    arrow = "\N{RIGHTWARDS ARROW}"
    sizes = (("CPU", "", wanted.cpu, before.cpu), ("memory", "By", wanted.memory_bytes, before.memory_bytes))
    words = [
        f"{name} {quantity(old, unit)} {arrow} {quantity(new, unit)}"
        for name, unit, new, old in sizes
        if new is not None
    ]
    if wanted.gpu_profile is not None:
        words.append(f"{before.gpu_profile or 'whole GPU'} {arrow} {wanted.gpu_profile}")
    return ", ".join(words)


def mixture(mix: Sequence[Portion]) -> str:
    """Replicas by offer, with what there was where that changes."""
    arrow = "\N{RIGHTWARDS ARROW}"
    changes = (
        f"{p.replicas_before} {arrow} {p.replicas}" if p.replicas != p.replicas_before else f"{p.replicas}" for p in mix
    )
    return ", ".join(f"{change} on {part.offer}" for change, part in zip(changes, mix, strict=True))


def effects(effect: Effect) -> list[tuple[str, str, bool | None]]:
    """Name, text and whether it is welcome of each expected effect that was estimated."""
    found: list[tuple[str, str, bool | None]] = []
    if effect.cost_usd_per_hour is not None:
        cost = effect.cost_usd_per_hour
        found.append(("cost", f"{signed(cost)} $/h", cost <= 0))
    if effect.carbon_g_per_hour is not None:
        grams = effect.carbon_g_per_hour
        text = f"{signed(grams / 1000)} kg" if abs(grams) >= 1000 else f"{signed(grams)} g"
        found.append(("carbon", f"{text} CO₂e/h", grams <= 0))
    if effect.power_w is not None:
        watts = effect.power_w
        text = f"{signed(watts / 1000)} kW" if abs(watts) >= 1000 else f"{signed(watts)} W"
        found.append(("power", text, None))
    if effect.gpus is not None:
        found.append(("GPUs", signed(effect.gpus), None))
    if effect.slo is not None:
        found.append(("SLO", f"{signed(100 * effect.slo)} pp", effect.slo >= 0))
    return found


def outcome_text(outcome: Outcome | None) -> tuple[str, str]:
    """Style and words of an outcome chip."""
    if outcome is None:
        return "waiting", "awaiting outcome"
    words: str = outcome.status
    if outcome.status == "refused" and outcome.code:
        words = f"refused: {outcome.code.replace('_', ' ')}"
    if outcome.mode == "dry_run" and outcome.status in ("accepted", "done"):
        words = f"{words}, dry run"
    return outcome.status, words
