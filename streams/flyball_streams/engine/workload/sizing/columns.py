"""State of the sized workloads in columns: samples of five seconds, minutes, queues, HPA."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Tick
from flyball_models import grow
from flyball_models.sizing import hpa, slo_headroom
from flyball_streams.engine.packing import arrays, like, wiped

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SAMPLE_NS = slo_headroom.SAMPLE_S * NS_PER_S
ROOM = 64
REQUEST_WORK_S = 60.0
"""Time constant of the mean work of a request."""
LEAST_LOOK = slo_headroom.SAMPLES // 2


class Observed(NamedTuple):
    """One tick of J workloads, float64 [J], NaN where unknown.

    Work and requests per second, waiting and running requests, ready replicas and all replicas, capacity of a replica,
    cold start; ``in_gpus`` is 1 where work is in busy GPUs.
    """

    work: Floats
    requests: Floats
    queued: Floats
    active: Floats
    ready: Floats
    replicas: Floats
    capacity: Floats
    cold_start_s: Floats
    in_gpus: Floats


class RequestWork(NamedTuple):
    """Recent work and requests [N], whose ratio is the work of a request, and the time without demand.

    ``idle_s`` is negative while the last demand has not led to a replica yet.
    """

    work: Floats
    requests: Floats
    idle_s: Floats
    in_gpus: Floats


class Partial(NamedTuple):
    """Sum and number of ticks of the incomplete five-second sample [N]."""

    total: Floats
    ticks: Floats


class Columns:
    """State of all sized workloads; its clock is that of the ticks.

    ``own`` [N, `floats`] is the policy's own state, zeros for a new workload.
    """

    def __init__(self, floats: int = 0) -> None:
        self.rows: dict[str, int] = {}
        self.room = 0
        self.at: int | None = None
        self.need = slo_headroom.init(0)
        self.rival = hpa.init(0)
        self.request_work = _request_work(0)
        self.partial = _partial(0)
        self.own = np.zeros((0, floats))
        self._latest: list[str] = []
        self._places = np.zeros(0, np.int64)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "rows": self.rows,
            "room": self.room,
            "at": self.at,
            "need": arrays(self.need),
            "rival": arrays(self.rival),
            "request_work": arrays(self.request_work),
            "partial": arrays(self.partial),
            "own": {name: self.own[row] for name, row in self.rows.items()} if self.own.shape[1] else {},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self._latest = []
        self.rows, self.room, self.at = dict(state["rows"]), state["room"], state["at"]
        self.need = like(slo_headroom.init(self.room), state["need"])
        self.rival = like(hpa.init(self.room), state["rival"])
        self.request_work = like(_request_work(self.room), state["request_work"])
        self.partial = like(_partial(self.room), state["partial"])
        self.own = np.zeros((self.room, self.own.shape[1]))
        for name, row in state.get("own", {}).items():
            if not np.isfinite(row).all():
                raise ValueError(f"what its policy knows of {name} is not finite")
            if row.shape == self.own.shape[1:]:  # else it is of another policy
                self.own[self.rows[name]] = row

    def place(self, names: list[str]) -> Ints:
        """Rows of workloads; new ones have no data."""
        if names == self._latest:
            return self._places
        new = [name for name in names if name not in self.rows]
        if new:
            free = sorted(set(range(self.room)) - set(self.rows.values()))
            lacking = len(new) - len(free)
            if lacking > 0:
                free += range(self.room, self.room + lacking)
                self._widen(-(-(self.room + lacking) // ROOM) * ROOM)
            self.rows.update(zip(new, free, strict=False))
        self._latest, self._places = names, np.array([self.rows[name] for name in names], np.int64)
        return self._places

    def work_of_request(self, name: str) -> float:
        """Recent mean work of a request; NaN if none was served or a value is unknown."""
        row = self.rows.get(name)
        if row is None or not self.request_work.requests[row] > 0.0:
            return float("nan")
        return float(self.request_work.work[row] / self.request_work.requests[row])

    def keep(self, names: set[str]) -> None:
        """Drop all other workloads."""
        self._latest = []
        gone = [self.rows.pop(name) for name in self.rows.keys() - names]
        if gone:
            self._wipe(gone)

    def observe(
        self,
        tick: Tick,
        rows: Ints,
        seen: Observed,
        terms: slo_headroom.Terms,
        usual: Floats,
        least: Floats,
        most: Floats,
    ) -> None:
        """Add a tick of the workloads in `rows`.

        `terms` are [N]; `usual` [J] is the target utilisation, `least` and `most` [J] the limits of replicas.
        """
        switched = rows[self.request_work.in_gpus[rows] == 1.0 - seen.in_gpus]
        if len(switched):
            self._wipe(switched.tolist())  # work in another unit says nothing about this one
        self.request_work.in_gpus[rows] = seen.in_gpus
        period_s = tick.period_ns / NS_PER_S
        self._update_request_work(rows, seen, period_s)
        first = (tick.end_ns - tick.period_ns) // SAMPLE_NS
        if self.at is None or first < self.at:
            self.at = first
            self._restart()
        self._pass(first - self.at, terms)
        known = np.isfinite(seen.work)
        self.partial.total[rows[known]] += seen.work[known]
        self.partial.ticks[rows[known]] += 1.0
        steps = tick.end_ns // SAMPLE_NS - self.at
        if not steps:
            return
        with np.errstate(invalid="ignore"):
            sample = self.partial.total / self.partial.ticks
        in_time, backlog = np.full(self.room, np.nan), self.backlog(rows, seen)
        known = np.isfinite(backlog)
        in_time[rows[known]] = (backlog <= terms.delay_s[rows] * seen.ready)[known]
        for _ in range(min(steps, slo_headroom.SILENT_SAMPLES)):
            self._update(sample, in_time, terms)
            if self.at % hpa.EVERY_SAMPLES == 0:
                self._look(rows, seen, usual, least, most)
        self.at = tick.end_ns // SAMPLE_NS
        self._restart()

    def backlog(self, rows: Ints, seen: Observed) -> Floats:
        """Backlog of the workloads in `rows` in replica seconds [J], NaN where unknown."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # not finite means unknown
            each = self.request_work.work[rows] / self.request_work.requests[rows]
            waits = seen.queued * each / seen.capacity
        waits = np.where(np.isfinite(waits) & (seen.in_gpus == 0.0), waits, np.nan)
        return np.where(seen.queued == 0.0, 0.0, waits)

    def present(self, rows: Ints) -> tuple[Floats, Floats]:
        """Mean work of the last half minute, and the newest sample, [J] each.

        Before the first sample, the former is the mean of the ticks so far.
        """
        assert self.at is not None
        with np.errstate(invalid="ignore"):
            now = self.partial.total[rows] / self.partial.ticks[rows]
        within = (self.at - 1) % slo_headroom.SAMPLES
        before = slo_headroom.present(self.need, within)[rows]
        newest = np.where(np.isfinite(now), now, self.need.raw[within, rows])
        return np.where(np.isfinite(before), before, now), newest

    def _pass(self, steps: int, terms: slo_headroom.Terms) -> None:
        """Add missing samples; only the first of them has data."""
        assert self.at is not None
        if steps <= 0:
            return
        with np.errstate(invalid="ignore"):
            sample = self.partial.total / self.partial.ticks
        unknown = np.full(self.room, np.nan)
        self._update(sample, unknown, terms)
        skipped = max(0, steps - 1 - slo_headroom.SILENT_SAMPLES)
        self.at += skipped
        for _ in range(steps - 1 - skipped):
            self._update(unknown, unknown, terms)
        self._restart()

    def _update(self, sample: Floats, in_time: Floats, terms: slo_headroom.Terms) -> None:
        assert self.at is not None
        slo_headroom.learn(self.need, self.at % slo_headroom.SAMPLES, sample, in_time, terms)
        self.at += 1

    def _look(self, rows: Ints, seen: Observed, usual: Floats, least: Floats, most: Floats) -> None:
        """Update HPA with the work of the last minute, where half of it is known."""
        raw = self.need.raw[:, rows]
        known = np.isfinite(raw)
        count = known.sum(axis=0)
        mean = np.where(known, raw, 0.0).sum(axis=0) / np.maximum(count, 1)
        work, target, have, lowest, highest = (np.full(self.room, np.nan) for _ in range(5))
        work[rows] = np.where(count >= LEAST_LOOK, mean / seen.capacity, np.nan)
        target[rows], have[rows] = usual, seen.replicas
        lowest[rows], highest[rows] = least, most
        hpa.step(self.rival, work, target, have, lowest, highest)

    def _update_request_work(self, rows: Ints, seen: Observed, period_s: float) -> None:
        served = (seen.in_gpus == 0.0) & (seen.ready > 0.0)  # work that no replica serves does not show
        both = np.isfinite(seen.work) & np.isfinite(seen.requests) & served
        at, rate = rows[both], 1.0 - np.exp(-period_s / REQUEST_WORK_S)
        for have, new in ((self.request_work.work, seen.work[both]), (self.request_work.requests, seen.requests[both])):
            have[at] = np.where(np.isnan(have[at]), new, have[at] + rate * (new - have[at]))
        busy = seen.work > np.where(seen.in_gpus > 0.0, 0.01 * seen.capacity, 0.0)
        quiet = ~(busy | (seen.requests > 0.0) | (seen.queued > 0.0) | (seen.active > 0.0))  # unknown counts as none
        # A request that found no replica is given the time of a start: until then the clock is below zero.
        since = np.where(seen.ready > 0.0, 0.0, np.where(np.isfinite(seen.cold_start_s), -seen.cold_start_s, 0.0))
        self.request_work.idle_s[rows] = np.where(quiet, self.request_work.idle_s[rows] + period_s, since)

    def _restart(self) -> None:
        self.partial.total.fill(0.0)
        self.partial.ticks.fill(0.0)

    def _widen(self, room: int) -> None:
        self.need, self.rival = grow(self.need, room, slo_headroom.init), grow(self.rival, room, hpa.init)
        for name, fresh in (("request_work", _request_work(room)), ("partial", _partial(room))):
            for new, old in zip(fresh, getattr(self, name), strict=True):
                new[: self.room] = old
            setattr(self, name, fresh)
        before, self.own = self.own, np.zeros((room, self.own.shape[1]))
        self.own[: self.room] = before
        self.room = room

    def _wipe(self, rows: list[int]) -> None:
        self.need = wiped(self.need, slo_headroom.init(self.room), rows)
        self.rival = wiped(self.rival, hpa.init(self.room), rows)
        self.request_work = wiped(self.request_work, _request_work(self.room), rows)
        self.partial = wiped(self.partial, _partial(self.room), rows)
        self.own[rows] = 0.0


def ends_sample(tick: Tick) -> bool:
    """Whether a five-second sample ends in a tick."""
    return tick.end_ns // SAMPLE_NS > (tick.end_ns - tick.period_ns) // SAMPLE_NS


def _request_work(n: int) -> RequestWork:
    return RequestWork(np.full(n, np.nan), np.full(n, np.nan), np.zeros(n), np.full(n, np.nan))


def _partial(n: int) -> Partial:
    return Partial(np.zeros(n), np.zeros(n))
