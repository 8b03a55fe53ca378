"""All settings of many families on many demands, in threads; what is kept is small: sums per day."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from flyball_streams.backtest import kernel
from flyball_streams.backtest.demand import Demand
from flyball_streams.backtest.families import Case, Family, Setting
from flyball_streams.backtest.kernel import Floats
from flyball_streams.backtest.run import Run, Scenario, simulate

DAY_SPANS = 24
BILLED, REQUESTS, LATE, ACTIONS, FLAPS, STARTS, SERVED, WORST = range(8)
"""Columns of a cell; WORST is the least attainment of an hour."""
COLUMNS = 8


class Configuration(NamedTuple):
    """One line of a claim: a trace, a cold start and a delay limit."""

    trace: str
    cold_start_s: float
    delay_s: int

    def __str__(self) -> str:
        """Return a short name."""
        return f"{self.trace} L={self.cold_start_s:.0f} s D={self.delay_s} s"


class Result(NamedTuple):
    """Settings of one family in one configuration, and their sums: ``cells`` float64 [settings, seeds, blocks, 8].

    A block is a day, or the part of one that a short trace has.
    """

    configuration: Configuration
    family: Family
    names: tuple[str, ...]
    cells: Floats


def blocks_of(run: Run, limit: int, block_spans: int = DAY_SPANS) -> Floats:
    """Sums of a run per block of spans, float64 [blocks, COLUMNS]; spans that do not fill a block make a last one."""
    spans = run.spans
    count = -(-len(spans) // block_spans)
    found = np.zeros((count, COLUMNS))
    late, asked = spans[:, kernel.LATE + limit], spans[:, kernel.REQUESTS]
    share = np.where(asked > 0, 1.0 - late / np.where(asked > 0, asked, 1.0), 1.0)
    sums = {
        BILLED: spans[:, kernel.BILLED],
        REQUESTS: asked,
        LATE: late,
        ACTIONS: spans[:, kernel.ACTIONS],
        FLAPS: spans[:, kernel.FLAPS],
        STARTS: spans[:, kernel.STARTS],
        SERVED: spans[:, kernel.SERVED],
    }
    for i in range(count):
        part = slice(i * block_spans, (i + 1) * block_spans)
        for column, values in sums.items():
            found[i, column] = values[part].sum()
        found[i, WORST] = share[part].min()
    return found


def sweep(
    traces: dict[str, list[Demand]],
    pairs: Iterable[tuple[float, int]],
    families: Iterable[Family],
    *,
    thin: int = 1,
    block_spans: int = DAY_SPANS,
    scenario: Scenario | None = None,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> Iterator[Result]:
    """Run every setting of every family; `traces` holds one demand per seed, `pairs` cold starts and delay limits.

    Families that do not look at the delay limit run once for all limits of a cold start.
    """
    limits: dict[float, list[int]] = {}
    for cold_start_s, delay_s in pairs:
        limits.setdefault(cold_start_s, []).append(delay_s)
    chosen = list(families)
    total, done = sum(_runs(f, limits) for f in chosen) * sum(len(d) for d in traces.values()), 0
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for trace, demands in traces.items():
            for cold_start_s, delays in limits.items():
                world = (scenario or Scenario(cold_start_s))._replace(cold_start_s=cold_start_s, limits_s=tuple(delays))
                for family in chosen:
                    for group in [[d] for d in delays] if family.by_delay else [delays]:
                        job = partial(_seed, family, world, group, thin, block_spans)
                        results = pool.map(job, range(len(demands)), demands)
                        cells: list[list[Floats]] = []
                        names: list[tuple[str, ...]] = []
                        for name, cell in results:
                            cells.append(cell)
                            names.append(name)
                            done += 1
                            if progress is not None:
                                progress(done, total)
                        for i, delay_s in enumerate(group):
                            found = np.stack([cell[i] for cell in cells], axis=1)
                            yield Result(Configuration(trace, cold_start_s, delay_s), family, names[0], found)


def _runs(family: Family, limits: dict[float, list[int]]) -> int:
    return sum(len(delays) if family.by_delay else 1 for delays in limits.values())


def _seed(
    family: Family, world: Scenario, delays: list[int], thin: int, block_spans: int, seed: int, demand: Demand
) -> tuple[tuple[str, ...], list[Floats]]:
    """Cells of all settings with one seed, float64 [settings, blocks, COLUMNS] for each delay limit."""
    settings: list[Setting] = family.settings(Case(demand, world.cold_start_s, delays[0], thin))
    scenario = world._replace(limits_s=tuple(delays), seed=seed)
    cells: list[list[Floats]] = [[] for _ in delays]
    for setting in settings:
        run = simulate(demand, setting.policy, scenario, setting.bounds)
        for i in range(len(delays)):
            cells[i].append(blocks_of(run, i, block_spans))
    return tuple(s.policy.name for s in settings), [np.stack(c) for c in cells]
