"""The promise policy of the worker: headroom that follows the share of work in time, raised by a trusted forecast."""

from typing import NamedTuple

import numpy as np

from flyball_contracts.config import SizingConfig
from flyball_contracts.records import WorkloadSpec
from flyball_models.sizing import promise
from flyball_models.sizing.limits import whole
from flyball_streams.engine.workload.columns import Columns, Floats, Ints, Seen

DRAIN_S = 60.0
LEVEL_MINUTES = 5
MOST = 2.0**31 - 1
LEAST_USUAL = 1e-3
"""A target utilisation below this is nobody's wish, and its quotients have no float."""


class Basis(NamedTuple):
    """What J workloads need, [J] each: replicas (NaN: unknown), and what that follows from, by place in :data:`BASES`.

    ``load`` is the work that a replica is given, ``work`` that which is needed, ``ahead`` what the forecast sees at its
    quantile ``level``, NaN where it is not trusted, and ``lead_s`` how far ahead.
    """

    replicas: Floats
    base: Ints
    load: Floats
    work: Floats
    ahead: Floats
    level: Floats
    lead_s: Floats


BASES = ("start", "headroom", "forecast", "present")
"""Demand while little is known of the workload; level and spread; the forecast; or what is there and waits."""
FORECAST, PRESENT = 2, 3


class Allowed(NamedTuple):
    """What specifications say, [J] each: target utilisation, least and most replicas."""

    usual: Floats
    least: Floats
    most: Floats


class Promises:
    """What was promised of each workload, in columns beside those of :class:`Columns`."""

    def __init__(self, sizing: SizingConfig) -> None:
        self.sizing = sizing
        self.specs: list[WorkloadSpec | None] = []
        self.terms = self._terms(0)
        self._latest: list[WorkloadSpec] = []
        self._allowed = Allowed(np.zeros(0), np.zeros(0), np.zeros(0))

    def note(self, rows: Ints, specs: list[WorkloadSpec], room: int) -> Allowed:
        """Read what new and changed specifications promise; what those in `rows` allow."""
        if specs == self._latest and len(self.specs) == room:
            return self._allowed
        if len(self.specs) != room:
            self.specs = list[WorkloadSpec | None]([None] * room)
            self.terms = self._terms(room)
        for row, spec in zip(rows.tolist(), specs, strict=True):
            if self.specs[row] is not spec:
                self.specs[row] = spec
                share, delay_s = promised(spec, self.sizing)
                terms = self.terms
                terms.z[row], terms.allowed[row], terms.delay_s[row] = promise.start(share), 1.0 - share, delay_s
                terms.delay[row] = max(1, min(promise.SAMPLES, round(delay_s / promise.SAMPLE_S)))

        given = [(s.target_utilization, s.min_replicas, s.max_replicas) for s in specs]
        usual, least, most = np.clip(np.array(given, np.float64).T, 0.0, MOST)
        self._latest = specs
        usual = np.where(usual > 0.0, np.clip(usual, LEAST_USUAL, 1.0), 1.0)
        self._allowed = Allowed(usual, least, np.maximum(most, least))
        return self._allowed

    def _terms(self, n: int) -> promise.Terms:
        sizing = self.sizing
        hold = max(1, min(promise.MOST_HELD, round(sizing.keep_s / 60.0)))
        zeros = np.zeros(n), np.zeros(n), np.zeros(n), np.ones(n, np.int64)
        return promise.Terms(*zeros, eta=sizing.promise_rate, level=LEVEL_MINUTES, hold=hold)


def promised(spec: WorkloadSpec, sizing: SizingConfig) -> tuple[float, float]:
    """Share of work that is to be in time, and the delay within which it is."""
    if spec.objective is not None:
        return min(max(spec.objective.attainment, 0.0), 1.0), max(spec.objective.delay_s, 0.0)
    return sizing.late_cost / (1.0 + sizing.late_cost), sizing.delay_s


def need(
    columns: Columns,
    rows: Ints,
    seen: Seen,
    backlog: Floats,
    usual: Floats,
    ahead: Floats,
    level: float,
    lead_s: Floats,
) -> Basis:
    """What the workloads in `rows` need; `usual` is their target utilisation, `ahead` the forecast's work, both [J]."""
    # Of GPUs only how busy they are is known, never what they could not serve: they must not be full.
    known, in_gpus = promise.known(columns.need)[rows], seen.in_gpus > 0.0
    load = np.where(known & ~in_gpus, seen.capacity, seen.capacity * usual)
    waits = np.nan_to_num(backlog) * load / np.maximum(DRAIN_S, seen.cold_start_s)
    present, newest = columns.present(rows)
    present = np.where(np.isfinite(present), present, columns.need.level[rows])
    start = np.maximum(np.fmax(present, newest) + waits, seen.replicas * load)
    options = np.stack(
        [
            np.where(known, -np.inf, start),
            np.where(known, columns.need.target[rows], -np.inf),
            np.where(np.isnan(ahead), -np.inf, np.where(in_gpus, 1.0, load / seen.capacity) * ahead),
            np.where(known, present + waits, -np.inf),
        ]
    )
    work, base = options.max(axis=0), options.argmax(axis=0)
    return Basis(whole(work / load), base, load, work, ahead, np.full(len(rows), level), lead_s)
