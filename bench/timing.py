"""What carbon timing saves of what perfect knowledge could save: our planner beside simpler ones.

    python bench/timing.py [--quick] [--data FOLDER] [--json PATH]

Deferrable jobs of 1 kW arrive in real grids; each is run by every policy in steps of ten minutes, and every start takes
``--restart`` minutes at full power without progress. ``captured`` is (at once - policy) / (at once - optimum), grams
summed over jobs, the optimum being exact with perfect knowledge and with the same cost of starts. What is known at an
hour: its own carbon, what was before, and the forecasts issued by then. Jobs (k, S) need k hours and have S hours more
until their deadline. Constants are those of the engine; the one that could be tuned, by how much a deviation from the
usual day fades in an hour, is compared on the tuning zones only, and figures are reported on the others.

``before`` is the rule that this planner replaced: 24 hours ahead, waiting only for 5 % in each slot.
``k-lowest`` re-plans each hour to the deadline on the same curve as ours, and knows neither starts nor a reserve.
``slow starts`` take one to three times what was declared; a ``slow job`` needs a fifth more than was declared.

Without ``--data`` the grids are synthetic: that shows that the script works, not what is claimed.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench`

from bench.common.report import machine
from bench.series.grids import HOUR_NS, WEEK_H, Floats, Grid, grids, known, made_up, past

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Demand, Tick, WorkloadSpec
from flyball_models.timing import on_off
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.workload.timing import intensity, schedule
from flyball_streams.engine.workload.timing.progress import Progress

KINDS = ((6, 24), (24, 24), (24, 168), (96, 168))
STEP_S = 600.0
STEPS = 6
SLOT_S = Parameters().slot_s
SOURCES = ("perfect", "forecast", "actuals")
TUNING = 2
"""Of the zones, by name, the first are for tuning."""
FADES = (0.0, 0.85, 0.93, 0.97)


class Job(NamedTuple):
    """A job of ``hours`` that arrives at an hour of its grid and must end ``slack`` hours after it could."""

    grid: Grid
    arrival: int
    hours: int
    slack: int
    slowness: float = 1.0

    @property
    def end(self) -> int:
        """Hour of the deadline."""
        return self.arrival + self.hours + self.slack


class Ran(NamedTuple):
    """How a job went: grams, starts, and whether it ended in time."""

    grams: float
    starts: int
    missed: bool


class Starts(NamedTuple):
    """Seconds that starts are declared to take, and how much longer they may truly take; seeded by job."""

    declared_s: float
    worst: float = 1.0

    def seconds(self, job: Job, number: int) -> float:
        """What one start takes."""
        random = np.random.default_rng([job.arrival, job.hours, job.slack, number])
        return self.declared_s * float(random.uniform(1.0, self.worst))


class Ours:
    """The engine's planner: its plan each hour, and its latest start at every step."""

    def __init__(self, job: Job, source: str, starts: Starts) -> None:
        self.job, self.source, self.starts = job, source, starts
        self.spec = WorkloadSpec(
            workload="job",
            cell="bench",
            time_ns=0,
            kind="batch",
            interruptible=True,
            cold_start_s=starts.declared_s,
            deadline_ns=job.end * HOUR_NS,
            duration_s=job.hours * 3600.0,
        )
        self.progress, self.week = Progress(), intensity.Week()
        self.week.note(past(job.grid, job.arrival), job.arrival * HOUR_NS)
        self.plan: Any = None
        self.planned = -1

    def wants(self, step: int, share: float, on: bool, ready: bool) -> bool:
        """Whether the job should run in a step."""
        now_ns, progress = round(step * STEP_S * NS_PER_S), self.progress
        tick = Tick(index=step - 1, period_ns=round(STEP_S * NS_PER_S))
        progress.observe(tick, Demand(workload="job", replicas=int(on), ready=int(ready), devices=1, progress=share))
        remaining_s = progress.remaining_s(self.spec)
        restart_s = progress.restart_s(self.spec, self.spec.cold_start_s)
        if on and not ready:
            remaining_s += restart_s
        job = schedule.Deferrable(self.spec, remaining_s, restart_s, progress.margin_s(self.spec.cold_start_s), on)
        hour, urgent = step // STEPS, job.must_run(now_ns)
        if hour != self.planned:
            signal = known(self.job.grid, self.source, hour, self.job.end)
            self.week.note(signal, now_ns)
            carbon = schedule.Curve(signal, self.week)
            self.plan = schedule.make_plan(job, carbon, None, signal.zone, now_ns, "bench", SLOT_S)
            self.planned = hour
        run = urgent or bool(self.plan.run[schedule.slot_of(self.plan, now_ns)])
        if run and not on:
            progress.note_request(now_ns)
        return run


class Simple:
    """At once, k-lowest without limits, or the rule before: decided at each full hour."""

    def __init__(self, job: Job, source: str, rule: str) -> None:
        self.job, self.source, self.rule, self.run = job, source, rule, True
        self.week = intensity.Week()
        self.week.note(past(job.grid, job.arrival), job.arrival * HOUR_NS)

    def wants(self, step: int, share: float, on: bool, ready: bool) -> bool:
        """Whether the job should run in a step."""
        del on, ready
        if step % STEPS or self.rule == "at once":
            return self.run
        hour = step // STEPS
        need = int(np.ceil((1.0 - share) * self.job.hours - 1e-9))
        signal = known(self.job.grid, self.source, hour, self.job.end)
        self.week.note(signal, hour * HOUR_NS)
        last = max(hour + 1, self.job.end)
        if self.rule == "before":
            cost = intensity.values_at(signal, _middles(hour, hour + 24))
            self.run = _before(cost, need, min(24, self.job.end - hour))
        else:
            cost = intensity.course(signal, self.week, _middles(hour, last))
            self.run = bool(0 in np.argsort(cost, kind="stable")[:need])
        return self.run


def _middles(first: int, last: int) -> Any:
    return np.arange(first, last, dtype=np.int64) * HOUR_NS + HOUR_NS // 2


def _before(cost: Floats, need: int, last: int) -> bool:
    if need > last or need <= 0:
        return True
    chosen = np.argsort(cost[:last], kind="stable")[:need]
    base, least = cost[:need].sum(), cost[chosen].sum()
    return bool(0 in chosen) if (base - least) / base >= 0.05 else True  # NaN: run


def ran(job: Job, policy: Ours | Simple, starts: Starts) -> Ran:
    """Carry a job out."""
    work_s, whole_s = 0.0, job.hours * 3600.0 * job.slowness
    loading_s, on, begun, grams, step = 0.0, False, 0, 0.0, job.arrival * STEPS
    while work_s < whole_s - 1e-6:
        hour = step // STEPS
        if hour >= job.end + 2 * job.hours or hour >= len(job.grid.carbon):
            break
        run = policy.wants(step, work_s / whole_s, on, on and loading_s <= 0) or hour >= job.end
        if run and not on:
            loading_s, begun = starts.seconds(job, begun), begun + 1
        on = run
        if on:
            load = min(loading_s, STEP_S)
            done = min(STEP_S - load, whole_s - work_s)
            loading_s, work_s = loading_s - load, work_s + done
            grams += job.grid.carbon[hour] * (load + done) / 3600.0
        step += 1
    ended_s = step * STEP_S
    return Ran(grams, begun, work_s < whole_s - 1e-6 or ended_s > job.end * 3600.0 + 1e-6)


def optimum(job: Job, restart_s: float) -> float:
    """Least grams with perfect knowledge: exact in steps of ten minutes, for jobs at the declared pace."""
    steps = (job.hours + job.slack) * STEPS
    carbon = np.repeat(job.grid.carbon[job.arrival : job.end], STEPS).astype(np.float32)
    work = np.array((job.hours * STEPS, round(restart_s / STEP_S)), np.int32)
    cost = carbon * np.float32(STEP_S / 3600.0)
    return float(on_off.plan(cost, np.ones(steps, np.int32), work, np.array(False), most=steps).cost)


def jobs_of(grid: Grid, kind: tuple[int, int], count: int, slowness: float = 1.0) -> list[Job]:
    """Jobs whose arrivals are spread evenly over the time that has forecasts, at changing hours of the day."""
    hours, slack = kind
    first, last = max(WEEK_H, min(grid.issues)), min(len(grid.carbon) - 1, max(grid.issues) + 24)
    last -= hours + slack + hours
    arrivals = np.linspace(first, last, count).astype(int)
    return [Job(grid, int(a) // 24 * 24 + (7 * i) % 24, hours, slack, slowness) for i, a in enumerate(arrivals)]


def measured(jobs: list[Job], policy: str, source: str, starts: Starts, best: list[float]) -> dict[str, Any]:
    """One row: what a policy saved on some jobs."""
    at_once = [ran(job, Simple(job, source, "at once"), starts).grams for job in jobs]
    rows = [
        ran(job, Ours(job, source, starts) if policy == "ours" else Simple(job, source, policy), starts) for job in jobs
    ]
    base, grams, least = float(sum(at_once)), float(sum(r.grams for r in rows)), sum(best)
    return {
        "jobs": len(jobs),
        "saved_share": (base - grams) / base,
        "possible_share": (base - least) / base,
        "captured_share": (base - grams) / (base - least),
        "missed": sum(int(r.missed) for r in rows),
        "starts_per_job": sum(r.starts for r in rows) / len(rows),
        "worse_than_at_once": sum(int(r.grams > a * 1.001) for r, a in zip(rows, at_once, strict=True)),
    }


def contests(reported: list[Grid], kinds: tuple[tuple[int, int], ...], count: int, restart_s: float) -> Any:
    """Rows of all policies and sources on the zones that are reported."""
    starts = Starts(restart_s)
    for kind in kinds:
        jobs = [job for grid in reported for job in jobs_of(grid, kind, count)]
        best = [optimum(job, restart_s) for job in jobs]
        for policy, source in [
            ("at once", "actuals"),
            *((policy, source) for source in SOURCES for policy in ("before", "k-lowest", "ours")),
        ]:
            yield {
                "part": "captured",
                "job": list(kind),
                "policy": policy,
                "known": source,
                **measured(jobs, policy, source, starts, best),
            }
        for part, slowness, late in (("slow starts", 1.0, Starts(restart_s, 3.0)), ("slow job", 1.2, starts)):
            some = [job for grid in reported for job in jobs_of(grid, kind, count, slowness)]
            for policy in ("k-lowest", "ours"):
                row = measured(some, policy, "perfect", late, best)
                row.pop("captured_share")  # the optimum does not know of either
                yield {"part": part, "job": list(kind), "policy": policy, "known": "perfect", **row}


def tuning(zones: list[Grid], kinds: tuple[tuple[int, int], ...], count: int, restart_s: float) -> Any:
    """Rows of the fading on the tuning zones, with actuals only."""
    shipped = intensity.HELD
    for fade in FADES:
        intensity.HELD = fade
        for kind in kinds:
            jobs = [job for grid in zones for job in jobs_of(grid, kind, count)]
            best = [optimum(job, restart_s) for job in jobs]
            row = measured(jobs, "ours", "actuals", Starts(restart_s), best)
            yield {"part": "tuning", "job": list(kind), "policy": f"ours, fade {fade}", "known": "actuals", **row}
    intensity.HELD = shipped


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few jobs of two kinds")
    parser.add_argument("--data", type=Path, help="folder that holds carbon_carboncast")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--restart", type=float, default=20.0, help="minutes that a start takes")
    parser.add_argument("--jobs", type=int, help="jobs of each kind and zone")
    args = parser.parse_args()
    zones = grids(args.data) if args.data else made_up()
    kinds = KINDS[:2] if args.quick else KINDS
    count = args.jobs or (4 if args.quick else 24)
    tuned, reported = zones[:TUNING], zones[TUNING:]
    rows = [
        *tuning(tuned, kinds[:2], count, args.restart * 60.0),
        *contests(reported, kinds, count, args.restart * 60.0),
    ]
    table = Table(title=f"Carbon timing, zones {', '.join(g.zone for g in reported)}; starts of {args.restart:g} min")
    for title in ("part", "job h", "policy", "known", "captured", "saved", "possible", "missed", "starts", "worse"):
        table.add_column(title, justify="right" if title in {"captured", "saved", "possible"} else "left")
    for row in rows:
        captured = f"{row['captured_share']:.1%}" if "captured_share" in row else ""
        table.add_row(
            row["part"],
            "+".join(str(h) for h in row["job"]),
            row["policy"],
            row["known"],
            captured,
            f"{row['saved_share']:.1%}",
            f"{row['possible_share']:.1%}",
            f"{row['missed']}/{row['jobs']}",
            f"{row['starts_per_job']:.1f}",
            str(row["worse_than_at_once"]),
        )
    Console(width=140).print(table)
    if args.json:
        about = {"zones": [g.zone for g in reported], "tuned_on": [g.zone for g in tuned], "restart_min": args.restart}
        args.json.write_text(json.dumps({"about": {**about, **machine()}, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
