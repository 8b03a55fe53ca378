"""The worker's policy slo_headroom: headroom that follows the share of work in time, raised by a trusted forecast."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.records import WorkloadSpec
from flyball_models.sizing import slo_headroom
from flyball_models.sizing.limits import raised, whole
from flyball_streams.engine.packing import like
from flyball_streams.engine.parameters import SizingParameters
from flyball_streams.engine.workload.forecast.forecaster import nearest
from flyball_streams.engine.workload.sizing.columns import Floats, Ints
from flyball_streams.engine.workload.sizing.policy import DRAIN_S, FORECAST, Basis, Policy, PolicyInput

LEVEL_MINUTES = 5
MOST = 2.0**31 - 1
LEAST_USUAL = 1e-3
"""Minimum of the target utilisation: below it, quotients overflow."""

COLUMNS = ("z", "allowed", "delay_s", "delay", "lead")
"""Terms that differ between workloads."""


class Allowed(NamedTuple):
    """Limits in specifications, [J] each: target utilisation, minimum and maximum replicas."""

    usual: Floats
    least: Floats
    most: Floats


class Objectives:
    """The objective of each workload, in columns beside the history, which follows a `rule`."""

    def __init__(self, sizing: SizingParameters, rule: slo_headroom.Rule) -> None:
        self.sizing = sizing
        self.rule = rule
        self.specs: list[WorkloadSpec | None] = []
        self.terms = self._terms(0)
        self._latest: list[WorkloadSpec] = []
        self._allowed = Allowed(np.zeros(0), np.zeros(0), np.zeros(0))

    def note(self, rows: Ints, specs: list[WorkloadSpec], room: int) -> Allowed:
        """Read the objectives of new and changed specifications; return the limits of the workloads in `rows`."""
        if specs == self._latest and len(self.specs) == room:
            return self._allowed
        if len(self.specs) != room:
            self._widen(room)
        for row, spec in zip(rows.tolist(), specs, strict=True):
            if self.specs[row] is not spec:
                self.specs[row] = spec
                share, delay_s = objective_of(spec, self.sizing)
                terms = self.terms
                terms.z[row], terms.allowed[row], terms.delay_s[row] = slo_headroom.start(share), 1.0 - share, delay_s
                terms.delay[row] = max(1, min(slo_headroom.SAMPLES, round(delay_s / slo_headroom.SAMPLE_S)))

        given = [(s.target_utilization, s.min_replicas, s.max_replicas) for s in specs]
        usual, least, most = np.clip(np.array(given, np.float64).T, 0.0, MOST)
        self._latest = specs
        usual = np.where(usual > 0.0, np.clip(usual, LEAST_USUAL, 1.0), 1.0)
        self._allowed = Allowed(usual, least, np.maximum(most, least))
        return self._allowed

    def reread(self) -> None:
        """Read all specifications again: rows have been reassigned."""
        self.specs = list[WorkloadSpec | None]([None] * len(self.specs))
        self._latest = []

    def state(self) -> list[Any]:
        """The objectives, for a snapshot; they include currently silent workloads."""
        return self._columns(self.terms)

    def load(self, state: list[Any], room: int) -> None:
        """Replace the state by that of a snapshot with `room` for workloads."""
        self._widen(room)
        kept = like(tuple(self._columns(self.terms)), state)
        self.terms = self.terms._replace(**dict(zip(COLUMNS, kept, strict=True)))
        self.reread()

    def _widen(self, room: int) -> None:
        before, self.terms = self.terms, self._terms(room)
        for new, old in zip(self._columns(self.terms), self._columns(before), strict=True):
            new[: len(old)] = old[:room]
        self.specs = [*self.specs, *[None] * room][:room]

    @staticmethod
    def _columns(terms: slo_headroom.Terms) -> list[Any]:
        return [getattr(terms, name) for name in COLUMNS]

    def _terms(self, n: int) -> slo_headroom.Terms:
        hold = max(1, min(slo_headroom.MOST_HELD, round(self.sizing.stabilization_window_s / 60.0)))
        return slo_headroom.Terms(
            z=np.zeros(n),
            allowed=np.zeros(n),
            delay_s=np.zeros(n),
            delay=np.ones(n, np.int64),
            lead=np.ones(n, np.int64),
            rule=self.rule,
            eta=self.sizing.headroom_rate,
            level=LEVEL_MINUTES,
            hold=hold,
        )


def objective_of(spec: WorkloadSpec, sizing: SizingParameters) -> tuple[float, float]:
    """Share of work that must be in time, and the allowed delay."""
    if spec.objective is not None:
        return min(max(spec.objective.attainment, 0.0), 1.0), min(max(spec.objective.delay_s, 0.0), MOST)
    return sizing.late_cost / (1.0 + sizing.late_cost), min(sizing.delay_s, MOST)


class Present(NamedTuple):
    """Present state, [J] each: whether enough is known, the work per replica, and demand.

    ``demanded`` is the work with its backlog, which is to be drained within some seconds; ``start`` is the newest
    five-second sample if it is higher, with the load per replica while little is known.
    """

    known: NDArray[np.bool_]
    load: Floats
    demanded: Floats
    start: Floats


def present(given: PolicyInput, drain_s: Floats) -> Present:
    """Return the present state, where a backlog is to be drained in `drain_s` [J]."""
    columns, rows, seen = given.columns, given.rows, given.seen
    # If work is in GPUs, only their load is known, not the work that they could not serve: they must not be full.
    known, careful = slo_headroom.known(columns.need)[rows], seen.capacity * given.usual
    load = np.where(seen.in_gpus > 0.0, careful, seen.capacity)
    work, newest = columns.present(rows)
    work = np.where(np.isfinite(work), work, columns.need.level[rows])
    waits = np.nan_to_num(given.backlog) / drain_s
    start = np.fmax(work, newest) + waits * careful
    return Present(known, np.where(known, load, careful), work + waits * load, start)


def based(given: PolicyInput, there: Present) -> Basis:
    """Return the need from headroom, present demand and the forecast."""
    seen, sizing = given.seen, given.sizing
    known, load = there.known, there.load
    nothing = np.full(len(known), -np.inf)
    options = np.stack(
        [
            np.where(known, nothing, np.maximum(there.start, seen.replicas * load)),
            np.where(known, given.columns.need.target[given.rows], nothing),
            nothing,
            np.where(known, there.demanded, nothing),
        ]
    )
    needed = options.max(axis=0)
    ahead = given.ahead(sizing.forecast_level, given.lead)
    work = raised(needed, np.where(seen.in_gpus > 0.0, 1.0, load / seen.capacity) * ahead)
    base = np.where(work > needed, FORECAST, options.argmax(axis=0))
    level = given.forecast.levels[nearest(given.forecast.levels, sizing.forecast_level)]
    return Basis(whole(work / load), base, load, work, ahead, np.full(len(known), level), given.lead_s)


def need(given: PolicyInput) -> Basis:
    """Needs of workloads; a backlog is to be drained in a minute, or in a cold start if that takes longer."""
    return based(given, present(given, np.maximum(DRAIN_S, given.seen.cold_start_s)))


POLICY = Policy(need, slo_headroom.RULE)
