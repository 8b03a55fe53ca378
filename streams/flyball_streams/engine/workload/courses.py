"""Detects services whose requests or latency take a course that they never took: by level, shift or time of day.

A service has no peers, so each of its series is judged by its own largest residuals, in windows of five minutes. A
service is reported again within six hours only if its surprise is larger. Requests of real services jump more often
than a tail of their past predicts, so the surprises of all services of the cell go into a second tail, which sets the
limit.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import HealthConfig
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Anomaly, Demand, Evidence, Tick
from flyball_models import bucket
from flyball_models.anomaly import outlier, tail
from flyball_streams.engine.budget import BUDGET_S, COURSES_SHARE, score
from flyball_streams.engine.packing import arrays, like, wiped

DETECTOR = "course"
SERIES = {
    "request_rate": ("flyball.workload.request.rate", "{request}/s"),
    "latency_s": ("flyball.workload.latency", "s"),
}
"""Field of a demand, and name and unit of its evidence."""
WINDOW_S = 300
HOLD_NS = 6 * 3600 * NS_PER_S
GONE_NS = 14 * 86_400 * NS_PER_S
SURPRISES = tail.Config(
    least=3.0,
    prior_n=1.0,
    prior_s=WINDOW_S * 1e3,
    prior_excess=(0.43, 0.43),
    excess_n=8.0,
    prior_shape=(-0.05, -0.05),
    shape_n=32.0,
)
"""By the definition of surprise: one window in a thousand is over 3, one in ten thousand over 4."""
Sums = NDArray[np.float64]
MOST = 1e12
"""A larger value is a telemetry error."""


class Courses:
    """Follows the services of one cell.

    ``known`` has the slot of each workload, ``last_seen`` and ``reported`` the times of its last value and last
    anomaly, ns, and ``worst`` the surprise of that anomaly. ``total`` and ``count`` [series, slots] sum up a window,
    which began at ``begin_ns``.
    """

    def __init__(self, cell: str, config: HealthConfig) -> None:
        self.cell = cell
        self.budget = COURSES_SHARE * config.false_incidents_per_1000_gpu_days
        self.known: dict[str, int] = {}
        self.last_seen: dict[str, int] = {}
        self.reported: dict[str, int] = {}
        self.worst: dict[str, float] = {}
        self.begin_ns = 0
        self.tail = tail.init(1, self.budget / BUDGET_S / len(SERIES), SURPRISES)
        self.model, self.total, self.count = _fresh(0)

    def step(self, tick: Tick, demands: dict[str, Demand]) -> Iterator[Anomaly]:
        """Anomalies of services, in the tick that ends a window."""
        for name, demand in demands.items() if not tick.missing else ():  # a sum that lacks a lane looks like a drop
            if demand.request_rate is not None:
                slot = self._slot(name, tick.end_ns)
                for row, field in enumerate(SERIES):
                    value = getattr(demand, field)
                    if value is not None and 0.0 <= value <= MOST:
                        self.total[row, slot] += value
                        self.count[row, slot] += 1.0
        if not self.known:
            return
        begin_ns = tick.end_ns - tick.end_ns % (WINDOW_S * NS_PER_S)
        if begin_ns == self.begin_ns:
            return
        is_back, self.begin_ns = begin_ns < self.begin_ns, begin_ns
        if is_back:  # the cell's clock was ahead: the sums since then mix several windows
            self.total, self.count = np.zeros_like(self.total), np.zeros_like(self.count)
            return
        with np.errstate(invalid="ignore"):
            x = self.total / self.count
        self.total, self.count = np.zeros_like(self.total), np.zeros_like(self.count)
        day_share = np.full(x.size, begin_ns / NS_PER_S % 86_400.0 / 86_400.0)
        self.model, found = outlier.step(self.model, x.ravel(), day_share)
        surprise, expected = (part.reshape(x.shape) for part in found)
        here = [name for name in self.known if name in demands and surprise[:, self.known[name]].any()]
        most = {name: float(surprise[:, self.known[name]].max()) for name in here}
        limit = self._learn([most[name] for name in here if self._is_news(name, most[name], tick.end_ns)], x, demands)
        for name in here:
            slot = self.known[name]
            if most[name] >= limit and self._is_news(name, most[name], tick.end_ns):
                self.reported[name], self.worst[name] = tick.end_ns, most[name]
                yield self._anomaly(tick, demands[name], x[:, slot], surprise[:, slot], expected[:, slot])

    def _learn(self, peaks: list[float], x: Sums, demands: dict[str, Demand]) -> float:
        """Add surprises to the tail; return the limit from before, so that no value moves the limit it is judged by."""
        sizes = [max(1, demands[name].devices) for name in self.known if name in demands]
        limit, watched_s = float(self.tail.limit[0]), float(np.isfinite(x).sum()) * WINDOW_S
        if not sizes:
            return limit
        gpus = sum(sizes) / len(sizes)
        value, none = np.array(peaks), np.zeros(len(peaks), np.int64)
        events = int((value > SURPRISES.least).sum())
        rate = self.budget / BUDGET_S * gpus / len(SERIES)
        known = tail.step(self.tail, none, value, np.array([watched_s]), WINDOW_S, rate, events, SURPRISES)
        self.tail = known
        return limit

    def _is_news(self, name: str, surprise: float, now_ns: int) -> bool:
        recent = 0 <= now_ns - self.reported.get(name, -HOLD_NS) < HOLD_NS
        return not recent or surprise > self.worst[name]

    def _anomaly(self, tick: Tick, demand: Demand, x: Any, surprise: Any, expected: Any) -> Anomaly:
        rarest: list[int] = [k for k in np.argsort(-surprise, kind="stable").tolist() if surprise[k] > 0]
        rate = tail.rates(self.tail, np.zeros(1, np.int64), np.array([float(surprise.max())]), SURPRISES)
        share = float(rate[0]) * len(SERIES) / max(1, demand.devices)
        shown = list(SERIES.values())
        return Anomaly(
            id=record_id("Anomaly", self.cell, demand.workload, DETECTOR, tick.index),
            subject=demand.workload,
            cell=self.cell,
            node="",
            time_ns=tick.end_ns,
            detector=DETECTOR,
            score=score(share * BUDGET_S, self.budget),
            evidence=tuple(
                Evidence(name=shown[k][0], value=float(x[k]), expected=float(expected[k]), unit=shown[k][1])
                for k in rarest
            ),
            workload=demand.workload,
            since_ns=max(0, tick.end_ns - WINDOW_S * NS_PER_S),
            false_per_1000_gpu_days=share * BUDGET_S,
        )

    def _slot(self, name: str, now_ns: int) -> int:
        if name not in self.known:
            gone = [other for other, at_ns in self.last_seen.items() if now_ns - at_ns > GONE_NS]
            free = [self._forget(other) for other in gone]
            if not free and len(self.known) == self.total.shape[1]:
                self._grow(bucket(len(self.known) + 1))
            taken = set(self.known.values())
            self.known[name] = next(slot for slot in range(self.total.shape[1]) if slot not in taken)
        self.last_seen[name] = now_ns
        return self.known[name]

    def _forget(self, name: str) -> int:
        slot = self.known.pop(name)
        for table in (self.last_seen, self.reported, self.worst):
            table.pop(name, None)
        room = self.total.shape[1]
        self.model = wiped(
            self.model, outlier.init(len(SERIES) * room), [row * room + slot for row in range(len(SERIES))]
        )
        self.total[:, slot] = self.count[:, slot] = 0.0
        return slot

    def _grow(self, room: int) -> None:
        model, total, count = _fresh(room)
        old_room = self.total.shape[1]
        for name in model._fields:
            new, old = getattr(model, name), getattr(self.model, name)
            shape = (*old.shape[:-1], len(SERIES))
            new.reshape(*shape, room)[..., :old_room] = old.reshape(*shape, old_room)
        total[:, :old_room], count[:, :old_room] = self.total, self.count
        self.model, self.total, self.count = model, total, count

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "known": self.known,
            "last_seen": self.last_seen,
            "reported": self.reported,
            "worst": self.worst,
            "begin_ns": self.begin_ns,
            "room": self.total.shape[1],
            "model": arrays(self.model),
            "tail": arrays(self.tail),
            "sums": arrays((self.total, self.count)),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.known, self.last_seen = dict(state["known"]), dict(state["last_seen"])
        self.reported, self.worst = dict(state["reported"]), dict(state["worst"])
        self.begin_ns = state["begin_ns"]
        model, total, count = _fresh(state["room"])
        self.model = like(model, state["model"])
        self.tail = like(self.tail, state["tail"])
        self.total, self.count = like((total, count), state["sums"])


def _fresh(room: int) -> tuple[outlier.State, Sums, Sums]:
    return outlier.init(len(SERIES) * room), np.zeros((len(SERIES), room)), np.zeros((len(SERIES), room))
