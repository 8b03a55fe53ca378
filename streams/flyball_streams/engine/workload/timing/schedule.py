"""When deferrable jobs run: at the least carbon and price before the deadline, restarts included.

Where the price of power is known, a kWh costs its price and its carbon at :data:`USD_PER_KG`. A sum below zero counts
as zero: a job must not restart more often to be paid for it.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Plan, Signal, WorkloadSpec
from flyball_models.timing import on_off
from flyball_streams.engine.workload.timing.intensity import Floats, Week, course

MOST_SLOTS = 512
"""Slots of a plan: with more time to a deadline they are longer, whole multiples of the configured ones."""
FARTHEST_NS = 366 * 86_400 * NS_PER_S
"""A deadline more than a year ahead counts as a year ahead."""
SIZES = (128, MOST_SLOTS)
"""Padded slot counts of a plan: few sizes, so that few shapes are compiled, all before the first tick."""
USD_PER_KG = 0.19
"""What a kg of CO2e costs beside the price of power: the central estimate of "Report on the Social Cost of Greenhouse
Gases", US EPA, 2023, for emissions of 2020."""
UNITS = 5
"""Parts of a slot in which work and lost time are counted."""


class Curve(NamedTuple):
    """Newest curve of a quantity in a zone, and its means of the last week, which continue it."""

    signal: Signal
    week: Week


class Deferrable(NamedTuple):
    """A job to schedule.

    It needs ``remaining_s`` of running time, loses ``restart_s`` at each start, and must run early enough to end
    ``margin_s`` before its deadline. A job that is ``running`` but still starting has its restart in ``remaining_s``.
    """

    spec: WorkloadSpec
    remaining_s: float
    restart_s: float = 0.0
    margin_s: float = 0.0
    running: bool = False

    @property
    def deadline_ns(self) -> int:
        """Time by which it must end."""
        return self.spec.deadline_ns or 0

    @property
    def needs_s(self) -> float:
        """Seconds until it ends if it runs from now on."""
        return self.remaining_s + (0.0 if self.running else self.restart_s)

    def must_run(self, now_ns: int) -> bool:
        """Whether waiting or pausing would put the deadline at risk."""
        left_s = (self.deadline_ns - now_ns) / NS_PER_S
        return left_s <= self.remaining_s + self.restart_s + self.margin_s


def is_deferrable(spec: WorkloadSpec) -> bool:
    """Whether a workload may be paused and must end by a time."""
    return spec.interruptible and spec.deadline_ns is not None and spec.duration_s is not None


def slot_start(time_ns: int, slot_s: float) -> int:
    """Start of the planning slot that holds a time."""
    slot_ns = round(slot_s * NS_PER_S)
    return time_ns // slot_ns * slot_ns


def make_plan(
    job: Deferrable, carbon: Curve | None, price: Curve | None, zone: str, now_ns: int, cell: str, slot_s: float
) -> Plan:
    """Plan of one job up to its deadline on the newest curves of its zone, of which there is at least one.

    If neither carbon nor price is known, or the deadline cannot be met with its margin, the job runs at once until its
    end.
    """
    end_ns = min(max(job.deadline_ns, now_ns), now_ns + FARTHEST_NS)
    left_s = (end_ns - now_ns) / NS_PER_S
    span_s = max(left_s, min(job.needs_s, MOST_SLOTS * slot_s), slot_s)
    step_s = slot_s * math.ceil(span_s / (slot_s * (MOST_SLOTS - 1)))
    start, step_ns = slot_start(now_ns, step_s), round(step_s * NS_PER_S)
    slots = min(MOST_SLOTS, max(1, math.ceil((now_ns - start + round(span_s * NS_PER_S)) / step_ns)))
    starts = start + np.arange(slots, dtype=np.int64) * step_ns
    grams, usd = (_course(curve, np.maximum(starts + step_ns // 2, now_ns)) for curve in (carbon, price))
    cost = _cost(grams, usd)
    unit_s = step_s / UNITS
    run = at_once = _seconds(np.ones(slots, bool), job, _inside(starts, step_ns, now_ns, None))
    if job.remaining_s > 0 and cost is not None:
        inside_s = _inside(starts, step_ns, now_ns, end_ns - round(min(job.margin_s, left_s) * NS_PER_S))
        units = np.floor(inside_s / unit_s + 1e-6).astype(np.int32)
        found = _cheapest(job, cost, units, unit_s)
        if found is not None:
            planned = _seconds(found, job, inside_s)
            if float(cost @ planned) < float(cost @ at_once):
                run = planned
    published = (curve.signal.published_ns for curve in (carbon, price) if curve is not None)
    return Plan(
        id=record_id("Plan", cell, job.spec.workload, start, *published, round(job.needs_s)),
        subject=job.spec.workload,
        cell=cell,
        zone=zone,
        time_ns=now_ns,
        start_ns=start,
        step_s=step_s,
        run=tuple((run > 0).tolist()),
        cost=tuple(round(c, 3) if math.isfinite(c) else 0.0 for c in grams.tolist()),
        saving=_saving(grams, at_once, run),
        feasible=job.needs_s <= left_s,
        deadline_ns=job.deadline_ns,
        price=tuple(round(c, 6) for c in usd.tolist()) if np.isfinite(usd).all() else (),
        price_saving=_saving(usd, at_once, run),
    )


def _course(curve: Curve | None, times_ns: NDArray[np.int64]) -> Floats:
    return np.full(len(times_ns), math.nan) if curve is None else course(curve.signal, curve.week, times_ns)


def _cost(grams: Floats, usd: Floats) -> Floats | None:
    """Cost of a kWh by slot, float64[slots], in USD, or in gCO2e without a price; ``None`` if nothing is known."""
    carbon_known = bool(np.isfinite(grams).all())
    if not np.isfinite(usd).all():
        return grams if carbon_known else None
    return np.maximum(usd + grams * (USD_PER_KG / 1000) if carbon_known else usd, 0.0)


def _saving(cost: Floats, at_once: Floats, planned: Floats) -> float:
    """Share of a cost that a plan saves, below 0 if it costs more; 0 if that is unknown, or nothing is to pay."""
    base = float(cost @ at_once)
    return (base - float(cost @ planned)) / base if base > 0 else 0.0


def _inside(starts: NDArray[np.int64], step_ns: int, now_ns: int, until_ns: int | None) -> Floats:
    """Seconds of each slot that lie between two times, float64[slots]."""
    ends = starts + step_ns
    ends = ends if until_ns is None else np.minimum(ends, until_ns)
    return np.maximum(ends - np.maximum(starts, now_ns), 0) / NS_PER_S


def _seconds(run: NDArray[np.bool_], job: Deferrable, inside_s: Floats) -> Floats:
    """Seconds that a job is on in each slot until it ends, restarts included; float64[slots]."""
    left, on = job.remaining_s, job.running
    found = np.zeros(len(run))
    for slot, wanted in enumerate(run.tolist()):
        if wanted and left > 0:
            left += 0.0 if on else job.restart_s
            found[slot] = min(left, inside_s[slot])
            left -= found[slot]
        on = wanted
    return found


def _cheapest(job: Deferrable, cost: Floats, units: NDArray[np.int32], unit_s: float) -> NDArray[np.bool_] | None:
    """Slots of the cheapest plan, bool[slots]; ``None`` when the work does not fit."""
    slots = len(cost)
    size = next(size for size in SIZES if slots <= size)
    prices, holds = np.zeros(size, np.float32), np.zeros(size, np.int32)
    prices[:slots], holds[:slots] = cost, units
    most = size * UNITS
    need, lost = (min(math.ceil(s / unit_s - 1e-6), most + 1) for s in (job.remaining_s, job.restart_s))
    found = on_off.plan(prices, holds, np.array((need, lost), np.int32), np.array(job.running), most=most)
    return np.asarray(found.run)[:slots] if found.feasible else None


def slot_of(plan: Plan, time_ns: int) -> int:
    """Slot of a plan that contains a time; the first or the last if none does."""
    return min(max(0, (time_ns - plan.start_ns) // round(plan.step_s * NS_PER_S)), len(plan.run) - 1)


def next_run(plan: Plan, time_ns: int) -> int | None:
    """Time from ``time_ns`` on at which the plan runs next, ``None`` when it never does."""
    for i in range(slot_of(plan, time_ns), len(plan.run)):
        if plan.run[i]:
            return plan.start_ns + i * round(plan.step_s * NS_PER_S)
    return None


def mean_cost(plan: Plan) -> float:
    """Mean of the known costs of the slots in which the plan runs, gCO2e/kWh; NaN where none is known."""
    return _mean([cost for cost, run in zip(plan.cost, plan.run, strict=True) if run and cost > 0])


def mean_price(plan: Plan) -> float:
    """Mean price of the slots in which the plan runs, USD/kWh; NaN if the plan has no price, or never runs."""
    return _mean([price for price, run in zip(plan.price, plan.run, strict=False) if run])


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
