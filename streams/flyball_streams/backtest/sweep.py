"""Runs all settings of many policy groups on many demands, in threads, and stores sums per day."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from flyball_streams.backtest import kernel
from flyball_streams.backtest.kernel import Floats
from flyball_streams.backtest.policies.groups import Conditions, PolicyGroup, Setting
from flyball_streams.backtest.policies.prepared import PreparedDemand
from flyball_streams.backtest.run import Run, Scenario, simulate

DAY_SPANS = 24
BILLED, REQUESTS, LATE, ACTIONS, FLAPS, STARTS, SERVED, WORST = range(8)
"""Columns of the sums of a block; WORST is the lowest attainment of an hour."""
COLUMNS = 8

_BlockSums = tuple[tuple[str, ...], list[Floats]]


class Configuration(NamedTuple):
    """One configuration: a trace, a cold start and a delay limit."""

    trace: str
    cold_start_s: float
    delay_s: int

    def __str__(self) -> str:
        """Return a short name."""
        return f"{self.trace} L={self.cold_start_s:.0f} s D={self.delay_s} s"


class Result(NamedTuple):
    """Settings of one group in one configuration, and their ``block_sums``, float64 [settings, seeds, blocks, 8].

    A block is a day, or a part of a short trace.
    """

    configuration: Configuration
    policy_group: PolicyGroup
    names: tuple[str, ...]
    block_sums: Floats


class Engine(Protocol):
    """Runs one setting on a demand; `seed` is the index of the demand among those of its trace."""

    def __call__(
        self,
        seed: int,
        shared: PreparedDemand,
        setting: Setting,
        world: Scenario,
        *,
        record: bool = False,
        delays_from_s: int = 0,
    ) -> Run:
        """See :func:`flyball_streams.backtest.run.simulate`."""
        ...


def fluid(
    seed: int,
    shared: PreparedDemand,
    setting: Setting,
    world: Scenario,
    *,
    record: bool = False,
    delays_from_s: int = 0,
) -> Run:
    """The fluid engine."""
    return simulate(
        shared.demand,
        setting.policy,
        world,
        setting.bounds,
        record=record,
        delays_from_s=delays_from_s,
        flow=shared.flow,
    )


def blocks_of(run: Run, limit: int, block_spans: int = DAY_SPANS) -> Floats:
    """Sums of a run per block of spans, float64 [blocks, COLUMNS]; remaining spans form a last block."""
    spans = run.spans
    count = -(-len(spans) // block_spans)
    found = np.zeros((count, COLUMNS))
    late, requested = spans[:, kernel.LATE + limit], spans[:, kernel.REQUESTS]
    share = np.where(requested > 0, 1.0 - late / np.where(requested > 0, requested, 1.0), 1.0)
    sums = {
        BILLED: spans[:, kernel.BILLED],
        REQUESTS: requested,
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
    traces: dict[str, list[PreparedDemand]],
    pairs: Iterable[tuple[float, int]],
    policy_groups: Iterable[PolicyGroup],
    *,
    thin: int = 1,
    block_spans: int = DAY_SPANS,
    scenario: Scenario | None = None,
    progress: Callable[[int, int], None] | None = None,
    engine: Engine = fluid,
) -> Iterator[Result]:
    """Run every setting of every policy group; `pairs` are cold starts and delay limits.

    `traces` holds one demand per seed (see :func:`flyball_streams.backtest.policies.prepared.prepare`). Groups whose
    settings do not depend on the delay limit run once for all limits of a cold start.
    """
    limits: dict[float, list[int]] = {}
    for cold_start_s, delay_s in pairs:
        limits.setdefault(cold_start_s, []).append(delay_s)
    chosen = list(policy_groups)
    groups = [
        (policy_group, cold_start_s, group)
        for cold_start_s, delays in limits.items()
        for policy_group in chosen
        for group in ([[d] for d in delays] if policy_group.by_delay else [delays])
    ]
    total, done = len(groups) * sum(len(d) for d in traces.values()), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for trace, shared in traces.items():
            jobs: list[list[Future[_BlockSums]]] = []
            for policy_group, cold_start_s, group in groups:
                world = (scenario or Scenario(cold_start_s))._replace(cold_start_s=cold_start_s, limits_s=tuple(group))
                job = partial(_seed, engine, policy_group, world, thin, block_spans)
                jobs.append([pool.submit(job, seed, each) for seed, each in enumerate(shared)])
            for (policy_group, cold_start_s, group), seeds in zip(groups, jobs, strict=True):
                found: list[_BlockSums] = []
                for each in seeds:
                    found.append(each.result())
                    done += 1
                    if progress is not None:
                        progress(done, total)
                for i, delay_s in enumerate(group):
                    block_sums = np.stack([part[i] for _, part in found], axis=1)
                    yield Result(Configuration(trace, cold_start_s, delay_s), policy_group, found[0][0], block_sums)


def _seed(
    engine: Engine,
    policy_group: PolicyGroup,
    world: Scenario,
    thin: int,
    block_spans: int,
    seed: int,
    shared: PreparedDemand,
) -> _BlockSums:
    """Names and block sums of all settings with one seed, float64 [settings, blocks, COLUMNS] for each delay limit."""
    settings: list[Setting] = policy_group.settings(Conditions(shared, world.cold_start_s, world.limits_s[0], thin))
    scenario = world._replace(seed=seed)
    block_sums: list[list[Floats]] = [[] for _ in world.limits_s]
    for setting in settings:
        run = engine(seed, shared, setting, scenario)
        for i in range(len(block_sums)):
            block_sums[i].append(blocks_of(run, i, block_spans))
    return tuple(s.policy.name for s in settings), [np.stack(c) for c in block_sums]
