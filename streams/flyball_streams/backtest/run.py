"""One run: a demand, a fleet and a policy, and the result."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling import Policy, number
from flyball_streams.backtest import kernel
from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.kernel import Bounds, Control, Faults, Floats, Flow, Measure, Plant, Sums, flow_of

DRAWS = 1 << 16
START_WINDOW_S = 600
NO_BOUNDS = Bounds(60, np.full(1, np.nan), np.full(1, np.nan), np.full(1, np.nan))
_NOTHING = np.zeros(0, np.int32)


class Scenario(NamedTuple):
    """Conditions and faults of a run.

    ``limits_s`` are the delays within which a request should be served. A cold start takes ``cold_start_s`` seconds,
    times a lognormal factor of ``cold_sigma`` (the median is unchanged); a share ``fail_share`` of the orders never
    becomes ready; a share ``lost_share`` of the samples is lost. Sums are kept per span of ``span_s`` seconds. Once in
    each ``outage_every_s`` seconds, at a random time, no sample arrives for ``outage_s`` seconds; once in each
    ``restart_every_s`` the policy loses its state, while orders are pending if possible (0: never).
    """

    cold_start_s: float
    limits_s: tuple[int, ...] = (5,)
    cold_sigma: float = 0.0
    fail_share: float = 0.0
    lost_share: float = 0.0
    seed: int = 0
    span_s: int = 3600
    least: int = 2
    most: int = 100_000
    drain_s: int = 30
    outage_s: int = 0
    outage_every_s: int = 6 * 3600
    restart_every_s: int = 0


class Run(NamedTuple):
    """Cost and service of a run: sums per span (columns of ``kernel``), delay histogram [s].

    With ``record``, ready replicas, all replicas, and the backlog after each second; else empty.
    """

    policy: Policy
    scenario: Scenario
    spans: Floats
    delays: Floats
    ready: NDArray[np.int32]
    total: NDArray[np.int32]
    backlog: NDArray[np.float32]

    def billed_hours(self) -> float:
        """Billed replica-hours."""
        return float(self.spans[:, kernel.BILLED].sum()) / 3600

    def attainment(self, limit: int = 0) -> float:
        """Share of requests served within a limit (by its index); 1 without requests."""
        requested = float(self.spans[:, kernel.REQUESTS].sum())
        return 1.0 if requested <= 0 else 1.0 - float(self.spans[:, kernel.LATE + limit].sum()) / requested

    def worst_span(self, limit: int = 0) -> float:
        """Lowest attainment of a span (an hour by default) that had requests."""
        requested = self.spans[:, kernel.REQUESTS]
        busy = requested > 0
        if not busy.any():
            return 1.0
        return float((1.0 - self.spans[busy, kernel.LATE + limit] / requested[busy]).min())

    def utilisation(self) -> float:
        """Work served over billed replica time."""
        return float(self.spans[:, kernel.SERVED].sum() / max(1.0, self.spans[:, kernel.BILLED].sum()))

    def per_hour(self, column: int) -> float:
        """Mean of a counter per hour."""
        return float(self.spans[:, column].sum()) * 3600 / (len(self.spans) * self.scenario.span_s)

    def delay_s(self, quantile: float) -> float:
        """Delay that a share `quantile` of the requests does not exceed."""
        total = self.delays.sum()
        if total <= 0:
            return 0.0
        below = np.cumsum(self.delays) < quantile * total - 1e-9
        return float(below.sum())


def simulate(
    demand: Demand,
    policy: Policy,
    scenario: Scenario,
    bounds: Bounds = NO_BOUNDS,
    *,
    record: bool = False,
    delays_from_s: int = 0,
    flow: Flow | None = None,
) -> Run:
    """Run a policy on a demand. `record` stores the replicas at each second.

    Delays are counted for requests from `delays_from_s` on. `flow` is the summed demand, which several runs can share.
    """
    seconds = len(demand.work)
    run = blank(seconds, policy, scenario, record=record)
    plant, cold, fails, fresh = world_of(demand, seconds, scenario)
    kernel.simulate(
        flow_of(demand.work, demand.requests) if flow is None else flow,
        plant,
        cold,
        Faults(fails, fresh, once_in(seconds, scenario.restart_every_s, scenario.seed)),
        control_of(policy),
        bounds,
        measure_of(scenario, delays_from_s),
        sums_of(run),
    )
    return run


def control_of(policy: Policy) -> Control:
    """Return a policy in the format of the engines."""
    return Control(number(policy), policy.row(), policy.every_s, policy.lag_s)


def measure_of(scenario: Scenario, delays_from_s: int) -> Measure:
    """Return what an engine counts; a reversal within two cold starts is a flap."""
    limits_s = np.array(scenario.limits_s, np.int64)
    return Measure(limits_s, round(2 * scenario.cold_start_s), scenario.span_s, delays_from_s)


def sums_of(run: Run) -> Sums:
    """Return the arrays of a run that an engine fills."""
    return Sums(run.spans, run.delays, run.ready, run.total, run.backlog)


def blank(seconds: int, policy: Policy, scenario: Scenario, *, record: bool = False) -> Run:
    """Return an empty run of a length in seconds; an engine fills its arrays."""
    spans = np.zeros((max(1, math.ceil(seconds / scenario.span_s)), kernel.LATE + len(scenario.limits_s)))
    ready = np.zeros(seconds, np.int32) if record else _NOTHING
    total = np.zeros(seconds, np.int32) if record else _NOTHING
    backlog = np.zeros(seconds if record else 0, np.float32)
    return Run(policy, scenario, spans, np.zeros(kernel.BINS), ready, total, backlog)


def world_of(
    demand: Demand, seconds: int, scenario: Scenario
) -> tuple[Plant, NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """The fleet at the start, cold starts [s] and failures by order, and the newest sample known in each second."""
    draw = np.random.default_rng([scenario.seed, 1])
    cold = np.full(1, round(scenario.cold_start_s), np.int64)
    if scenario.cold_sigma > 0:
        cold = np.rint(scenario.cold_start_s * np.exp(scenario.cold_sigma * draw.standard_normal(DRAWS))).astype(
            np.int64
        )
    fails = draw.random(DRAWS) < scenario.fail_share if scenario.fail_share > 0 else np.zeros(1, bool)
    begin = min(START_WINDOW_S, len(demand.work))
    start = math.ceil(1.5 * float(demand.work[:begin].mean())) + 1 if begin else scenario.least
    plant = Plant(min(max(start, scenario.least), scenario.most), scenario.least, scenario.most, scenario.drain_s)
    return plant, np.maximum(cold, 1), fails, _fresh(seconds, scenario, draw)


def _fresh(seconds: int, scenario: Scenario, draw: np.random.Generator) -> NDArray[np.int64]:
    """At each second, the newest second whose sample has arrived; empty if none is lost."""
    if scenario.lost_share <= 0 and scenario.outage_s <= 0:
        return np.zeros(0, np.int64)
    index = np.arange(seconds, dtype=np.int64)
    lost = draw.random(seconds) < scenario.lost_share
    if scenario.outage_s > 0:
        for begin in once_in(seconds, scenario.outage_every_s, scenario.seed):
            lost[begin : begin + scenario.outage_s] = True
    return np.maximum.accumulate(np.where(lost, 0, index))


def once_in(seconds: int, every_s: int, seed: int) -> NDArray[np.int64]:
    """A random second in each whole period of `every_s`; none if that is 0."""
    count = seconds // every_s if every_s > 0 else 0
    draw = np.random.default_rng([seed, 2])
    return (np.arange(count) * every_s + draw.integers(0, max(1, every_s), count)).astype(np.int64)
