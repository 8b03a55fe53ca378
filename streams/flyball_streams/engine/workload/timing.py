"""When deferrable jobs run: the least carbon before the deadline."""

import math
from typing import NamedTuple

import numpy as np

from flyball_contracts.config import TimingConfig
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Plan, Signal, WorkloadSpec
from flyball_models.timing import k_lowest

MOST_COST = 1e9
"""A carbon intensity above this is a fault of the feed; float32 ends at 3e38."""


class Deferrable(NamedTuple):
    """A job to time: ``remaining_s`` is the running time that it still needs."""

    spec: WorkloadSpec
    remaining_s: float
    zone: str


def is_deferrable(spec: WorkloadSpec) -> bool:
    """Whether a workload may be paused and must end by a time."""
    return spec.interruptible and spec.deadline_ns is not None and spec.duration_s is not None


def slot_start(time_ns: int, config: TimingConfig) -> int:
    """Start of the planning slot that holds a time."""
    slot_ns = round(config.slot_s * NS_PER_S)
    return time_ns // slot_ns * slot_ns


def make_plan(job: Deferrable, signal: Signal, now_ns: int, cell: str, config: TimingConfig) -> Plan:
    """Plan of one job on the newest carbon curve, from the slot that holds ``now_ns`` on.

    Slots that the curve does not cover are used last. When waiting would save less than ``least_saving``, or nobody
    knows, or the deadline cannot be kept, the plan is to run at once and on to the end.
    """
    start = slot_start(now_ns, config)
    slots = max(1, round(config.horizon_s / config.slot_s))
    slot_ns = round(config.slot_s * NS_PER_S)
    curve = [signal.at(start + i * slot_ns + slot_ns // 2) for i in range(slots)]
    cost = np.array([math.nan if c is None or abs(c) > MOST_COST else c for c in curve], np.float32)
    deadline_ns = job.spec.deadline_ns or start
    last = max(0, min(slots, (deadline_ns - start) // slot_ns))
    need = math.ceil(min(max(0.0, job.remaining_s) / config.slot_s, slots + 1))
    found = k_lowest.plan(cost, np.zeros(1, np.int32), np.array([last], np.int32), np.array([need], np.int32))
    run, feasible = np.asarray(found.run)[0], bool(np.asarray(found.feasible)[0])
    at_once = np.arange(slots) < need
    base = float(cost[at_once].sum())
    saving = (base - float(cost[run].sum())) / base if base > 0 else 0.0
    if not feasible or not saving >= config.least_saving:  # a slot of unknown cost makes it NaN
        run, saving = at_once, 0.0
    return Plan(
        id=record_id("Plan", cell, job.spec.workload, start, signal.published_ns, need),
        subject=job.spec.workload,
        cell=cell,
        zone=signal.zone,
        time_ns=now_ns,
        start_ns=start,
        step_s=config.slot_s,
        run=tuple(run.tolist()),
        cost=tuple(round(c, 3) if math.isfinite(c) else 0.0 for c in cost.tolist()),
        saving=saving,
        feasible=feasible,
        deadline_ns=deadline_ns,
    )


def slot_of(plan: Plan, time_ns: int) -> int:
    """Slot of a plan that holds a time; the first or the last where none does."""
    return min(max(0, (time_ns - plan.start_ns) // round(plan.step_s * NS_PER_S)), len(plan.run) - 1)


def next_run(plan: Plan, time_ns: int) -> int | None:
    """Time from ``time_ns`` on at which the plan runs next, ``None`` when it never does."""
    for i in range(slot_of(plan, time_ns), len(plan.run)):
        if plan.run[i]:
            return plan.start_ns + i * round(plan.step_s * NS_PER_S)
    return None


def mean_cost(plan: Plan) -> float:
    """Mean of the known costs of the slots in which the plan runs, gCO2e/kWh; NaN where none is known."""
    known = [cost for cost, run in zip(plan.cost, plan.run, strict=True) if run and cost > 0]
    return sum(known) / len(known) if known else math.nan
