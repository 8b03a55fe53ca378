"""Regular days and unexpected events apart: how good a forecast is where it is easy, and where it is not.

Demand is the mean work of each minute; a forecast is made a cold start ahead and judged at the minute it is for. That
minute belongs to one class, by a rule on the series alone that was written down before any figure was seen and has
round numbers. With m the median of the hour before and a that of the hour from the minute on:

- level shift: a is more than 1.5 times m or less than m / 1.5, at that minute or up to an hour before it;
- burst: the minute is at least 2 m, and no level shift;
- outage: the minute is at most m / 2, and no level shift;
- ordinary: every other minute.

The worst are those a tenth of the minutes at most of each class of events (but no fewer than 10) that are farthest from
m. Accuracy is 1 - WAPE over all series: 1 - sum |y - forecast| / sum y, week 2 only; in an outage, where little is
left to divide by, it is often far below 0. Gaps of the traces were filled by interpolation before arrivals were drawn.
"""

import math
from typing import Any, cast

import jax
import numpy as np
from bench.forecasts import steps
from numpy.typing import NDArray
from rich.table import Table

from flyball_models import bucket
from flyball_models.forecast import ensemble
from flyball_streams.backtest.demands.demand import MINUTE_S, Demand
from flyball_streams.backtest.policies.bounds import lead_minutes

HOUR = 60
DAY = 24 * HOUR
SHIFT, BURST, OUTAGE = 1.5, 2.0, 0.5
WORST = 0.1
FEWEST = 10
CLASSES = ("ordinary", "burst", "outage", "level shift")
MODELS = ("last value", "mean of 15 min", "yesterday", "ensemble")

Floats = NDArray[np.float64]


def minutes_of(demands: list[Demand]) -> Floats:
    """Mean work of each minute, float64 [T, S]."""
    count = min(len(d.work) for d in demands) // MINUTE_S
    return np.stack([d.work[: count * MINUTE_S].reshape(count, MINUTE_S).mean(axis=1) for d in demands], axis=1)


def classes(y: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Class of each minute (a place in :data:`CLASSES`) and its distance |ln(y / m)|, [T, S] each.

    The first hour is ordinary.
    """
    t = len(y)
    kind, away = np.zeros(y.shape, np.int64), np.zeros(y.shape)
    if t <= 2 * HOUR:
        return kind, away
    view = np.lib.stride_tricks.sliding_window_view(y, HOUR, axis=0)
    hour = np.median(view, axis=2)  # of y[k .. k + 59]
    before = np.maximum(hour[: t - HOUR], 1e-9)  # of the hour before minute HOUR + k
    after = np.concatenate([hour[HOUR:], np.repeat(hour[-1:], t - HOUR - len(hour[HOUR:]), axis=0)])
    ratio, now = after / before, np.maximum(y[HOUR:], 1e-9) / before
    begins = (ratio > SHIFT) | (ratio < 1 / SHIFT)
    total = np.cumsum(np.concatenate([np.zeros((HOUR + 1, y.shape[1])), begins]), axis=0)
    shifted = total[HOUR + 1 :] > total[1 : len(begins) + 1]  # began at that minute or in the 59 before it
    kind[HOUR:] = np.where(shifted, 3, np.where(now >= BURST, 1, np.where(now <= OUTAGE, 2, 0)))
    away[HOUR:] = np.abs(np.log(now))
    return kind, away


def forecasts(y: Floats, leads: tuple[int, ...]) -> dict[str, dict[int, Floats]]:
    """Forecasts of each model by lead [minutes], placed at the minute they are for; NaN where none was made."""
    t, s = y.shape
    longest = max(leads)
    config = ensemble.configure(longest, tuple(sorted({1, *leads})), 0)
    n = bucket(s)
    rows = np.zeros((t, n), np.float32), np.zeros((t, n), bool)
    rows[0][:, :s], rows[1][:, :s] = y, True

    lax: Any = jax.lax

    def tick(state: Any, row: Any) -> Any:
        state, combined = steps.step(ensemble, state, *row, config=config)
        return state, combined.forecast

    def over_time(start: Any, x: Any) -> Any:
        return lax.scan(tick, start, x)[1]

    found = cast("Any", jax).jit(over_time)(ensemble.init(n, config), rows)
    combined = np.asarray(found, np.float64)[:, :s]
    total = np.cumsum(np.concatenate([np.zeros((1, s)), y]), axis=0)
    mean = np.stack([(total[k + 1] - total[max(0, k - 14)]) / min(k + 1, 15) for k in range(t)])
    made: dict[str, dict[int, Floats]] = {name: {} for name in MODELS}
    for lead in leads:
        for name, source in zip(MODELS, (y, mean, y, combined[:, :, lead - 1]), strict=True):
            late = DAY if name == "yesterday" else lead
            placed = np.full(y.shape, np.nan)
            placed[late:] = source[: t - late]
            made[name][lead] = placed
    return made


def apart(demands: list[Demand], cold_starts_s: tuple[float, ...]) -> list[dict[str, Any]]:
    """Accuracy by model, lead and class; ``share`` is how many minutes of week 2 belong to the class."""
    y = minutes_of(demands)
    kind, away = classes(y)
    test = np.zeros(y.shape, bool)
    test[len(y) // 2 :] = True
    leads = tuple(dict.fromkeys(lead_minutes(x) for x in cold_starts_s))
    made = forecasts(y, leads)
    chosen = {"all": test} | {name: test & (kind == i) for i, name in enumerate(CLASSES)}
    for name in CLASSES[1:]:
        chosen[f"worst {name}"] = _worst(chosen[name], away)
    rows: list[dict[str, Any]] = []
    for name, by_lead in made.items():
        for lead, forecast in by_lead.items():
            off, there = np.abs(y - forecast), np.isfinite(forecast)
            accuracy = {
                label: 1.0 - float(off[part & there].sum() / max(y[part & there].sum(), 1e-9))
                if (part & there).any()
                else math.nan
                for label, part in chosen.items()
            }
            rows.append({"model": name, "lead_minutes": lead, "accuracy": accuracy})
    share = {label: float(part.sum() / test.sum()) for label, part in chosen.items()}
    return [{"model": "share of minutes", "lead_minutes": 0, "accuracy": share}, *rows]


def _worst(part: NDArray[np.bool_], away: Floats) -> NDArray[np.bool_]:
    count = int(part.sum())
    keep = min(count, max(FEWEST, math.ceil(WORST * count)))
    found = np.zeros(part.shape, bool)
    order = np.argsort(-np.where(part, away, -1.0), axis=None, kind="stable")[:keep]
    found.flat[order] = True
    return found


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows as a table."""
    shown = Table(title="accuracy (1 - WAPE) a cold start ahead, minutes of week 2", title_justify="left", box=None)
    shown.add_column("forecast")
    for name in ("lead", *rows[0]["accuracy"]):
        shown.add_column(name, justify="right")
    for row in rows:
        lead = f"{row['lead_minutes']} min" if row["lead_minutes"] else ""
        entries = ("-" if not math.isfinite(x) else f"{x:.1%}" for x in row["accuracy"].values())
        shown.add_row(row["model"], lead, *entries, style="bold" if row["model"] == "ensemble" else None)
    return shown
