"""Detects gangs that slow down as a whole: a change of their step time is an anomaly of the workload.

All members of such a gang slow down together, so a comparison of peers shows nothing. A workload whose replicas or GPUs
change has other step times, so its baseline is reset.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from flyball_contracts.config import HealthConfig
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Anomaly, Demand, Evidence, Tick
from flyball_models import bucket
from flyball_models.anomaly import step_time, tail
from flyball_streams.engine.budget import BUDGET_S, STEPS_SHARE, score
from flyball_streams.engine.packing import arrays, like, wiped

DETECTOR = "step_time"
TAIL = tail.Config(prior_n=1.0, prior_excess=(0.25, 0.25), prior_shape=(-0.1, -0.1), shape_n=32.0)
NO_PEERS = 1
"""Stratum of series without peers; the other stratum stays empty."""
MOST_LIMIT = 30.0
"""Cap of the limit: a gang that is much slower is reported within minutes however noisy the gangs of its cell are."""
REPEAT_NS = 600 * NS_PER_S
GONE_NS = 86_400 * NS_PER_S
MOST_S = 1e6
"""A longer step time is a telemetry error."""


class StepTimes:
    """Monitors the step times of one cell's workloads that report them.

    ``known`` has the slot of each workload, ``sizes`` its replicas and GPUs, ``last_seen`` the time of its last report,
    and ``reported`` the time of its last anomaly, in ns of event time.
    """

    def __init__(self, cell: str, config: HealthConfig) -> None:
        self.cell = cell
        self.budget = config.false_incidents_per_1000_gpu_days
        self.rate = STEPS_SHARE * self.budget / BUDGET_S
        self.known: dict[str, int] = {}
        self.sizes: dict[str, tuple[int, int]] = {}
        self.last_seen: dict[str, int] = {}
        self.reported: dict[str, int] = {}
        self.model = step_time.init(0)
        self.tail = tail.init(2, self.rate, TAIL)

    def step(self, tick: Tick, demands: dict[str, Demand]) -> Iterator[Anomaly]:
        """Anomalies of workloads whose steps take longer now; repeated every ten minutes while they do."""
        current = {name: d for name, d in demands.items() if d.step_s is not None and 0.0 < d.step_s <= MOST_S}
        if not current and not self.known:
            return
        self._place(current, tick.end_ns)
        step_s = np.full(self.model.level.shape[0], np.nan)
        step_s[[self.known[name] for name in current]] = [d.step_s for d in current.values()]
        now_s, period_s = tick.end_ns / NS_PER_S, tick.period_ns / NS_PER_S
        limit = min(float(self.tail.limit[NO_PEERS]), MOST_LIMIT)
        self.model, found = step_time.step(self.model, step_s, now_s, period_s, limit)
        if found is None:
            return
        peaks = found.ended[found.ended > 0]
        exposure_s = np.array([0.0, found.exposure_s.sum()])
        stratum = np.full(len(peaks), NO_PEERS)
        self.tail = tail.step(self.tail, stratum, peaks, exposure_s, period_s, self.rate, len(peaks), TAIL)
        slower_slots = set(np.flatnonzero(found.alarm).tolist())
        for name in sorted(name for name, slot in self.known.items() if slot in slower_slots):
            if 0 <= tick.end_ns - self.reported.get(name, -REPEAT_NS) < REPEAT_NS:
                continue
            self.reported[name] = tick.end_ns
            yield self._anomaly(tick, name, found)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "known": self.known,
            "sizes": {name: list(both) for name, both in self.sizes.items()},
            "last_seen": self.last_seen,
            "reported": self.reported,
            "room": self.model.level.shape[0],
            "model": arrays(self.model),
            "tail": arrays(self.tail),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.known, self.last_seen, self.reported = (
            dict(state["known"]),
            dict(state["last_seen"]),
            dict(state["reported"]),
        )
        self.sizes = {name: (replicas, devices) for name, (replicas, devices) in state["sizes"].items()}
        self.model = like(step_time.init(state["room"]), state["model"])
        self.tail = like(tail.init(2, self.rate, TAIL), state["tail"])

    def _anomaly(self, tick: Tick, name: str, found: step_time.Detections) -> Anomaly:
        slot = self.known[name]
        slower, usual_s = float(found.slower[slot]), float(found.expected_s[slot])
        rate = float(tail.rates(self.tail, np.array([NO_PEERS]), found.ratio[[slot]], TAIL)[0])
        since_ns = round(float(self.model.onset_s[slot]) * NS_PER_S)
        return Anomaly(
            id=record_id("Anomaly", self.cell, name, DETECTOR, tick.index),
            subject=name,
            cell=self.cell,
            node="",
            time_ns=tick.end_ns,
            detector=DETECTOR,
            score=score(rate * BUDGET_S, self.budget * STEPS_SHARE),
            evidence=(
                Evidence(name="flyball.workload.step.time", value=usual_s * (1.0 + slower), expected=usual_s, unit="s"),
                Evidence(name="step.time.slower", value=slower, expected=0.0),
                Evidence(name="devices", value=float(self.sizes[name][1]), unit="{device}"),
            ),
            workload=name,
            since_ns=max(0, min(since_ns, tick.end_ns)),
            false_per_1000_gpu_days=rate * BUDGET_S,
        )

    def _place(self, current: dict[str, Demand], now_ns: int) -> None:
        """Assign a slot to each workload, free those of workloads that are gone, and reset resized ones."""
        fresh: list[int] = []
        for name, demand in current.items():
            parts = demand.replicas, demand.devices
            if name in self.known and self.sizes[name] != parts:
                fresh.append(self.known[name])
                self.reported.pop(name, None)
            self.sizes[name], self.last_seen[name] = parts, now_ns
        new = [name for name in current if name not in self.known]
        if new:
            for name in [name for name, at_ns in self.last_seen.items() if now_ns - at_ns > GONE_NS]:
                for kept in (self.last_seen, self.sizes, self.reported):
                    kept.pop(name, None)
                fresh.append(self.known.pop(name))
            taken, room = set(self.known.values()), self.model.level.shape[0]
            if len(taken) + len(new) > room:
                room = bucket(len(taken) + len(new))
                self.model = step_time.resize(self.model, room)
            free = iter([slot for slot in range(room) if slot not in taken])
            self.known.update((name, next(free)) for name in new)
        if fresh:
            self.model = wiped(self.model, step_time.init(self.model.level.shape[0]), fresh)
