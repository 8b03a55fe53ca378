"""A backtest as text, for the terminal and the page."""

from flyball_streams.backtest.events import text as single
from flyball_streams.backtest.safety import MOST_COST, MOST_LOST, Outcome
from flyball_streams.backtest.study import Row, Study

UNKNOWN = "-"
LEAST_S, LEAST_STARTS = 1200.0, 5.0
"""Seconds, and cold starts, that must be measured before a claim is made."""
COLUMNS = (
    "equal service",
    "95 %",
    "hours",
    "USD",
    "kg CO2e",
    "in time",
    "worst",
    "p99 wait",
    "act/h",
    "flaps/h",
    "busy",
)


def plain(value: float | None) -> str:
    """Three significant digits, without an exponent; a dash for unknown values."""
    if value is None:
        return UNKNOWN
    rounded = float(f"{value:.3g}")
    return f"{value:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def percent(share: float | None) -> str:
    """A share in percent, with as many digits as its distance from 100 % needs."""
    if share is None:
        return UNKNOWN
    digits = 3 if share >= 0.9995 else 2 if share >= 0.98 else 1
    return f"{100 * share:.{digits}f} %" if share < 1 else "100 %"


def against(row: Row) -> str:
    """Cost at equal service relative to the baseline; replica-hours if the baseline missed the target."""
    if row.ratio is None:
        return "not reached" if row.equal_hours is None else f"{plain(row.equal_hours)} h"
    return f"{100 * (row.ratio - 1):+.1f} %" + (" (limited)" if row.equal_limited else "")


def interval(row: Row) -> str:
    """Interval of the change at equal service."""
    if row.ratio_low is None or row.ratio_high is None or row.ratio == 1:
        return UNKNOWN
    return f"{100 * (row.ratio_low - 1):+.1f}..{100 * (row.ratio_high - 1):+.1f}"


def entries(row: Row) -> tuple[str, ...]:
    """Table row in the order of :data:`COLUMNS`; all but the first two columns are of the frozen setting."""
    wait = UNKNOWN if row.delay_p99_s is None else f"{plain(row.delay_p99_s)} s"
    return (
        against(row),
        interval(row),
        plain(row.billed_hours),
        plain(row.cost_usd),
        plain(row.carbon_kg),
        percent(row.attainment),
        percent(row.worst_span),
        wait,
        plain(row.actions_per_hour),
        plain(row.flaps_per_hour),
        percent(row.utilisation),
    )


FAULT_COLUMNS = ("in time", "reactive-only", "points lost", "cost", "blind", "verdict")


def fault_entries(outcome: Outcome) -> tuple[str, ...]:
    """Table row of one policy under one fault, in the order of :data:`FAULT_COLUMNS`."""
    return (
        percent(outcome.attainment),
        percent(outcome.reactive_attainment),
        f"{outcome.lost_points:+.2f}",
        f"{100 * outcome.cost_change:+.1f} %",
        str(outcome.blind),
        "passed" if outcome.passed else "failed",
    )


ENGINES = (
    "fluid, first come first served, in seconds",
    "single requests in one queue, first come first served, replicas that serve them in batches",
)


def too_short(study: Study) -> bool:
    """Whether too little was measured for a claim."""
    return 3600 * study.test_hours < _needed_s(study)


def _needed_s(study: Study) -> float:
    return max(LEAST_S, LEAST_STARTS * study.cold_start_s)


def headline(study: Study) -> str:
    """One sentence that claims only what was measured."""
    ours = next((row for row in study.rows if row.ours), None)
    base = next((row for row in study.rows if row.key == study.base), None)
    objective = f"{percent(study.target)} of requests within {study.delay_s} s"
    where = f"in simulation, at {objective} and {study.cold_start_s:.0f} s of cold start"
    if ours is None or base is None:
        return f"Policies compared {where}."
    if too_short(study):
        needed_s = _needed_s(study)
        return (
            f"Too little data for a claim: {60 * study.test_hours:.0f} min were measured, and it takes "
            f"{needed_s / 60:.0f}; give at least {2 * needed_s / 60:.0f} min, for half of them are for tuning."
        )
    if ours.ratio is None or ours.ratio_low is None or ours.ratio_high is None:
        short = [row.title for row in (ours, base) if row.equal_hours is None]
        why = f"{' and '.join(short)} never got there" if short else "their costs cannot be told apart"
        return f"No comparison of {ours.title} with tuned {base.title}, {where}: {why}."
    change, low, high = (100 * (x - 1) for x in (ours.ratio, ours.ratio_low, ours.ratio_high))
    verdict = "used less" if high < 0 else "used more" if low > 0 else "is not clearly different"
    line = f"{change:+.1f} % GPU time [{low:+.1f}, {high:+.1f}] against tuned {base.title}"
    return f"{ours.title} {verdict}: {line}, {where}."


def method(study: Study) -> list[str]:
    """How the result was measured, and the assumptions, one sentence each."""
    tried = max((row.tried for row in study.rows), default=0)
    unit = "h" if study.span_s == 3600 else f"{study.span_s} s"
    seeds = f"{study.seeds} seed{'s' if study.seeds > 1 else ''}"
    spread = f" (lognormal, sigma {study.cold_sigma:g})" if study.cold_sigma else ""
    prices = study.prices
    lines = [
        f"Every policy had at most {tried} settings. They were tuned on the first half of the data and measured on "
        f"the second ({study.test_hours:.1f} h). Costs at equal service are interpolated on the settings that the "
        "first half left on its Pareto front; 'limited' means that even the cheapest serves more than the objective. "
        "Where the baseline never serves the objective, the others show replica-hours in place of a change. "
        "All other columns are of the one setting that the first half chose.",
        f"Intervals: 95 %, paired bootstrap over blocks of time and {seeds}; worst: the worst {unit}.",
        f"Engine: {ENGINES[study.engine == 'events']}; a replica is billed from its order, through a cold start of "
        f"{study.cold_start_s:.0f} s{spread} and a drain of 30 s.",
        f"Bounds: the work itself is {plain(study.work_hours)} replica-hours; a clairvoyant that serves all in time, "
        f"as far as {study.most:,} replicas can, needs {plain(study.cover_hours)}. Every policy has {study.least:,} to "
        f"{study.most:,} replicas.",
        f"Assumed: ${prices.usd_per_replica_hour:g} per replica-hour, {prices.watts_per_replica:g} W for each that is "
        f"billed, {prices.carbon_g_per_kwh:g} gCO2e/kWh. Waits, worst and actions are of the first seed.",
    ]
    if study.confirmed is not None:
        lines.append(single.method(study.confirmed))
    if study.safety:
        lines.append(
            "Faults were put into the second half, for settings tuned without them. Reactive-only is the tuned "
            "baseline that was cheapest on the first half, under the same fault. A policy passes when it loses at most "
            f"{MOST_LOST:g} point against it, costs at most {100 * MOST_COST:.0f} % more than without the fault, and "
            "takes nothing away while all samples are older than a minute (blind counts replicas that were). "
            "Policies that are told nothing of the future are not asked what a wrong forecast does to them."
        )
    if study.span_s != 3600:
        lines.append(
            "The data are short: hours of tuning and of testing are close to each other, and no season can be seen."
        )
    return lines
