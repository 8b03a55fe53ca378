"""Healthy hosts for weeks, and what the rules for hosts and silent nodes report of them, against their budget.

No public trace has pressure or silences of a fleet, so both are generated, with tails that the detectors do not assume.
Waits: each workload of eight nodes writes checkpoints together, once in one to four hours, for lognormal times with a
median of 25 s; each node reloads data six times a day with a median of 20 s, and is backed up at night for some
minutes. Ports: links flap three times a node and day, with one to four reports of some errors. Silences: of each node
eight a day with a median of 10 s, and once a day a rack of four is cut off for twice that. All that is reported is
false. The detectors run as in the node lane; only the values come from here.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU, HOST
from flyball_contracts.records import Allocation, Inventory, Tick
from flyball_streams.engine import Directory
from flyball_streams.engine.budget import BUDGET_S, HELD_UP_SHARE, SILENCE_SHARE
from flyball_streams.engine.node.detector import CellTick
from flyball_streams.engine.node.detectors.absences import Absences
from flyball_streams.engine.node.detectors.pressure import ERROR_COLUMNS, LASTS_S, WAIT_COLUMNS, Pressure
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.node.window import Means

Floats = NDArray[np.float32]
NODES, GPUS, GANG, RACK = 64, 8, 8, 4
TICK_S, DAY_S, MERGED_S = 10.0, 86_400.0, 3600.0
TICKS = round(DAY_S / TICK_S)
ALWAYS = 1.0
"""A rate that keeps no budget: the rules' own limits hold."""
START_NS = 1_750_000_000 * 1_000_000_000


def _spells(
    random: np.random.Generator, nodes: int, per_day: float, median_s: float, sigma: float
) -> list[NDArray[np.int64]]:
    """First and last tick of the spells of each node in a day, [n, 2]."""
    found: list[NDArray[np.int64]] = []
    for _ in range(nodes):
        n = int(random.poisson(per_day))
        begin = random.integers(0, TICKS, n)
        lasts = np.rint(median_s * random.lognormal(0.0, sigma, n) / TICK_S).astype(np.int64)
        found.append(np.stack([begin, np.minimum(begin + lasts, TICKS)], axis=1))
    return found


def day(random: np.random.Generator, pace_s: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Shares of waits [T, 3, N], errors of ports [T, 2, N] and who is silent [T, N] in a day; ``pace_s`` by gang."""
    waits = np.abs(random.normal(0.02, 0.01, (TICKS, 3, NODES))).astype(np.float32)
    errors = np.zeros((TICKS, 2, NODES), np.float32)
    silent = np.zeros((TICKS, NODES), bool)
    paces: list[float] = pace_s.tolist()
    for gang, pace in enumerate(paces):
        mine = slice(gang * GANG, (gang + 1) * GANG)
        at = float(random.uniform(0.0, pace))
        while at < DAY_S:
            lasts_s, share = 25.0 * float(random.lognormal(0.0, 0.5)), float(random.uniform(0.3, 0.9))
            waits[int(at / TICK_S) : int((at + lasts_s) / TICK_S), 2, mine] += share
            at += pace
    for node, spells in enumerate(_spells(random, NODES, 6.0, 20.0, 0.8)):
        for begin, end in spells.tolist():
            waits[begin:end, 0, node] += float(random.uniform(0.3, 0.9))
    night = round(2 * 3600 / TICK_S) + random.integers(0, 360, NODES)
    for node, (begin, lasts) in enumerate(zip(night, 180.0 * random.lognormal(0.0, 0.4, NODES), strict=True)):
        waits[begin : begin + round(lasts / TICK_S), 2, node] += 0.5
    for node, spells in enumerate(_spells(random, NODES, 3.0, 15.0, 0.7)):
        for begin, end in spells.tolist():
            reports = min(end - begin + 1, 4)
            errors[begin : begin + reports, 0, node] += random.geometric(0.1, len(errors[begin : begin + reports]))
    for node, spells in enumerate(_spells(random, NODES, 8.0, 10.0, 0.7)):
        for begin, end in spells.tolist():
            silent[begin:end, node] = True
    for rack, spells in enumerate(_spells(random, NODES // RACK, 1.0, 20.0, 0.7)):
        for begin, end in spells.tolist():
            silent[begin:end, rack * RACK : (rack + 1) * RACK] = True
    return np.minimum(waits, 1.0), errors, silent


def _inventory(node: str, workload: str) -> Inventory:
    held = (Allocation(workload=workload, replica=node),)
    return Inventory(node=node, cell="cell", epoch=1, time_ns=0, boot_id="", devices=(), allocations=held)


class Fleet:
    """The detectors of one cell, and how often each reported a node; repeats within an hour count once.

    Silent nodes of a rack are one, as they are one incident of it.
    """

    def __init__(self, budget: float | None) -> None:
        self.rate = ALWAYS if budget is None else GPUS * budget / BUDGET_S
        self.table, gpus = SubjectTable(HOST, NODES), SubjectTable(GPU)
        self.pressure, self.absences = Pressure(lambda _: set(), self.table.capacity), Absences()
        self.nodes = [f"node-{n}" for n in range(NODES)]
        self.table.rows(tuple(self.nodes), "")
        inventories = {name: _inventory(name, f"gang-{n // GANG}") for n, name in enumerate(self.nodes)}
        self.seen = CellTick(
            cell="cell", tick=Tick(index=0, period_ns=1), gpus=gpus, hosts=self.table,
            tenancy=Tenancy(inventories, {}, gpus.capacity), directory=Directory(), inventories=inventories,
            events=[], usage=[], node_rate=self.rate,
        )  # fmt: skip
        self.values = np.full((self.table.capacity, len(HOST)), np.nan, np.float32)
        self.index = round(START_NS / 1e9 / TICK_S)
        self.last: dict[tuple[str, str], int] = {}
        self.got = {"pressure": 0, "network": 0, "silence": 0}

    def step(self, waits: Floats, errors: Floats, silent: NDArray[np.bool_]) -> None:
        """One tick."""
        self.index += 1
        tick = Tick(index=self.index, period_ns=round(TICK_S * 1e9))
        self.values[:NODES, WAIT_COLUMNS] = (waits * np.float32(TICK_S)).T
        self.values[:NODES, ERROR_COLUMNS] = errors.T
        self.values[:NODES][silent] = np.nan
        self.table.means = Means(self.values, np.array(np.isfinite(self.values).any(axis=1)), TICK_S)
        for anomaly in self.pressure.step(replace(self.seen, tick=tick)):
            self._note(anomaly.detector, anomaly.node)
        for node in np.flatnonzero(~silent).tolist():
            self.absences.observe(self.nodes[node], tick.index)
        for symptom in self.absences.silent(tick, self.nodes, SILENCE_SHARE * self.rate):
            self._note("silence", f"rack of {self.nodes.index(symptom.node) // RACK}")

    def _note(self, detector: str, node: str) -> None:
        if self.index - self.last.get((detector, node), 0) > MERGED_S / TICK_S:
            self.got[detector] += 1
        self.last[detector, node] = self.index


def rows(seed: int, days: int, budgets: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    """False incidents by detector, from cold, of the rules' own limits (budget 0) and of those that keep a budget."""
    requested: tuple[float | None, ...] = (None, *budgets)
    fleets = [Fleet(budget) for budget in requested]
    random = np.random.default_rng(seed)
    pace_s = np.exp(random.uniform(np.log(3600.0), np.log(4 * 3600.0), NODES // GANG)).astype(np.float32)
    first: list[dict[str, int]] = []
    for number in range(days):
        waits, errors, silent = day(random, pace_s)
        for fleet in fleets:
            for at in range(TICKS):
                fleet.step(waits[at], errors[at], silent[at])
        if number == 0:
            first = [dict(fleet.got) for fleet in fleets]
    for budget, fleet, cold in zip(requested, fleets, first, strict=True):
        gpu_days = NODES * GPUS * days
        yield {
            "part": "hosts",
            "seed": seed,
            "gpu_days": gpu_days,
            "per_1000_gpu_days": budget,
            "asked": None if budget is None else budget * gpu_days / 1000.0 * (HELD_UP_SHARE + SILENCE_SHARE),
            "asked_all": None if budget is None else budget * gpu_days / 1000.0,
            "got": dict(fleet.got),
            "first_day": cold,
            "limits_s": [*(LASTS_S * fleet.pressure.tail.limit[:3]).tolist(), fleet.absences.limit_s],
        }


def rows_of(found: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines of the table."""
    for r in found:
        if r["part"] == "hosts":
            requested = ("fixed limits", "", "") if r["per_1000_gpu_days"] is None else (
                f"{r['per_1000_gpu_days']:g}", f"{r['asked_all']:.2f}", f"{r['asked']:.2f}"
            )  # fmt: skip
            cpu_s, _, io_s, silent_s = r["limits_s"]
            yield (
                f"{r['gpu_days']:.0f}",
                *requested,
                *(f"{r['got'][key]} ({r['first_day'][key]})" for key in ("pressure", "network", "silence")),
                f"{cpu_s:.0f} / {io_s:.0f} / {silent_s:.0f}",
            )


TITLES = (
    "GPU-days", "per 1,000 GPU-days", "asked, all detectors", "asked of these", "waits (first day)", "ports",
    "silences", "limits in the end, s: CPU / disk / silence",
)  # fmt: skip
