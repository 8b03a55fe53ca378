"""Benefit of Flyball: service and cost, each compared with the baseline without Flyball."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_streams.dashboard.charts.service import Quantity
from flyball_streams.dashboard.state.accounts import Moment, Totals
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import Summary
from flyball_streams.dashboard.text import MINUS, UNKNOWN, count, number, percent, signed, span

_SAME = 0.0005  # ratios nearer to each other than this are the same


class Figure(NamedTuple):
    """One number and the number to compare it with; ``part`` is its share of the larger of the two, for a bar.

    ``better`` is ``None`` without a comparison or a difference.
    """

    name: str
    value: str
    note: str = ""
    beside: str = ""
    change: str = ""
    better: bool | None = None
    part: float | None = None
    part_beside: float | None = None


class Worth(NamedTuple):
    """Figures of the service by quantity, figures of the cost, the curves, and missing inputs."""

    service: dict[Quantity, Figure]
    cost: list[Figure]
    actual: Sequence[Moment]
    baseline: Sequence[Moment]
    since_ns: int
    missing: str


def worth_of(view: FleetView, summary: Summary) -> Worth:
    """The figures from accounts, or from telemetry if there are none."""
    actual, baseline = view.accounts.totals()
    if actual is None:
        return _derived(view, summary)
    cell = max(
        view.accounts.cells("actual"),
        key=lambda name: moments[-1].queued if (moments := view.accounts.moments("actual", name)) else 0.0,
    )
    missing = "" if baseline else "No account of the same time without Flyball, so there is nothing to compare with."
    if actual.cells > 1:
        missing = f"{missing} The curves are those of cell {cell}.".strip()
    ours = view.accounts.moments("actual", cell)
    return Worth(
        _service(actual, baseline, ours),
        _costs(actual, baseline),
        ours,
        view.accounts.moments("baseline", cell) if baseline else [],
        actual.since_ns,
        missing,
    )


def _service(actual: Totals, baseline: Totals | None, moments: Sequence[Moment]) -> dict[Quantity, Figure]:
    recent = next((m.share for m in reversed(moments) if m.share is not None), None)
    share = Figure("Requests in time", _share(actual.share), "" if recent is None else f"last minute {_share(recent)}")
    queue = Figure("Queue", count(actual.queued), "requests wait now")
    delay = Figure("Latency", _delay(actual.delay_s), "wait of a request that comes now, mean of services")
    if baseline is None:
        return {"share": share, "queued": queue, "delay_s": delay}
    if actual.share is not None and baseline.share is not None:
        points = 100 * (actual.share - baseline.share)
        share = share._replace(
            beside=_share(baseline.share),
            change=f"{signed(round(points, 2))} pp",
            better=None if abs(points) < 100 * _SAME else points > 0,
        )
    return {
        "share": share,
        "queued": queue._replace(
            beside=count(baseline.queued),
            change=_ratio(actual.queued, baseline.queued),
            better=_better(actual.queued, baseline.queued),
        ),
        "delay_s": delay
        if actual.delay_s is None or baseline.delay_s is None
        else delay._replace(
            beside=_delay(baseline.delay_s),
            change=_ratio(actual.delay_s, baseline.delay_s),
            better=_better(actual.delay_s, baseline.delay_s),
        ),
    }


def _costs(actual: Totals, baseline: Totals | None) -> list[Figure]:
    lost = f"{number(actual.lost_gpu_h)} of them lost work"
    other: tuple[float | None, float | None, float | None, float | None] = (None, None, None, None)
    if baseline is not None:
        other = baseline.cost_usd, baseline.energy_kwh, baseline.carbon_kg, baseline.gpu_h
    return [
        _cost(
            "Cost", "$", "", actual.cost_usd, other[0],
            _of_work(actual, baseline, lambda t: t.cost_usd, "$", "", "machines"),
        ),
        _cost(
            "Energy", "", " kWh", actual.energy_kwh, other[1],
            _of_work(actual, baseline, lambda t: t.energy_kwh, "", " kWh", "used by GPUs"),
        ),
        _cost(
            "Carbon", "", " kgCO₂e", actual.carbon_kg, other[2],
            _of_work(actual, baseline, lambda t: t.carbon_kg, "", " kg", "at the grid's actual intensity"),
        ),
        _cost("GPU-hours", "", "", actual.gpu_h, other[3], lost),
    ]  # fmt: skip


def _of_work(
    actual: Totals, baseline: Totals | None, amount: Callable[[Totals], float], before: str, unit: str, otherwise: str
) -> str:
    """Amount per useful GPU-hour, because a scenario that does more work may use more; ``otherwise`` if unknown."""

    def rate(totals: Totals) -> float | None:
        return amount(totals) / totals.useful_gpu_h if totals.useful_gpu_h else None

    ours, other = rate(actual), None if baseline is None else rate(baseline)
    if ours is None:
        return otherwise
    text = f"{before}{number(ours)}{unit} a useful GPU-hour"
    if other is None:
        return text
    change = _ratio(ours, other)
    return f"{text}, {change}" if change != "no difference" else f"{text}, as without"


def _cost(name: str, before: str, unit: str, ours: float, other: float | None, note: str) -> Figure:
    figure = Figure(name, _amount(before, ours, unit), note)
    if other is None:
        return figure
    most = max(ours, other)
    return figure._replace(
        beside=_amount(before, other, unit),
        change=_ratio(ours, other),
        better=_better(ours, other),
        part=ours / most if most > 0 else None,
        part_beside=other / most if most > 0 else None,
    )


def _amount(before: str, value: float, unit: str) -> str:
    """An amount of money, energy or carbon; large ones in MWh and tonnes."""
    larger = {" kWh": " MWh", " kgCO₂e": " tCO₂e"}.get(unit)
    if larger is not None and value >= 10_000:
        return f"{number(value / 1000)}{larger}"
    return f"{before}{number(value)}{unit}"


def _better(ours: float, other: float) -> bool | None:
    return None if abs(ours - other) <= _SAME * max(abs(ours), abs(other)) else ours < other


def _ratio(ours: float, other: float) -> str:
    if other <= 0:
        return "" if ours <= 0 else "none without"
    ratio = ours / other - 1
    if abs(ratio) < _SAME:
        return "no difference"
    if ratio >= 1:
        return f"{number(ours / other, 2)} times"
    return f"{'+' if ratio > 0 else MINUS}{percent(abs(ratio), 0 if abs(ratio) >= 0.0995 else 1)}"


def _share(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    digits = 2 if 0.99 <= value < 0.99995 else 1
    return percent(value, digits)


def _delay(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else span(seconds)


def _derived(view: FleetView, summary: Summary) -> Worth:
    """Current values, by telemetry, prices and grid curves."""
    moments = view.service.moments()
    judged = [m.share for m in moments if m.share is not None]
    last = moments[-1] if moments else None
    latency = next((m.delay_s for m in reversed(moments[-5:]) if m.delay_s is not None), None)
    seen_s = (moments[-1].time_ns - moments[0].time_ns) / NS_PER_S if len(moments) > 1 else 0.0
    share = sum(judged) / len(judged) if judged else None
    note = f"ticks of the last {span(seen_s)} whose mean latency met the objective"
    service: dict[Quantity, Figure] = {
        "share": Figure("Requests in time", _share(share), note if judged else "no latency with an objective yet"),
        "queued": Figure("Queue", count(last.queued) if last else UNKNOWN, "requests wait now"),
        "delay_s": Figure("Latency", _delay(latency), "mean of the requests that ended"),
    }
    priced = f"{count(summary.priced)} nodes have a price" if summary.priced else "no inventory has a price"
    carbon = summary.carbon_g_per_hour
    cost = [
        Figure("Cost now", UNKNOWN if summary.usd_per_hour is None else f"${number(summary.usd_per_hour)}/h", priced),
        Figure("Power now", UNKNOWN if summary.power_w is None else f"{number(summary.power_w / 1000)} kW", "GPUs"),
        Figure(
            "Carbon now",
            UNKNOWN if carbon is None else f"{number(carbon / 1000)} kgCO₂e/h",
            "no grid curve of these zones" if carbon is None else "at the grid's intensity",
        ),
        Figure("GPUs at work", count(summary.busy), f"of {count(summary.gpus)}"),
    ]
    missing = (
        "No accounts on flyball.insights.v1: totals, and the same time without Flyball to compare with, are not known. "
        "What stands here is derived from telemetry, prices and grid curves."
    )
    return Worth(service, cost, moments, [], 0, missing)
