"""Detects replicas that answer more slowly than the others of their service, or not at all while those do.

A server on a GPU that has become slow has normal sensors, and so has one that hangs between two requests. What its
requests show is compared over all node lanes: replicas of one service on one GPU model are peers. A share of the budget
of false incidents bounds how often healthy replicas are reported.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import HealthConfig
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Anomaly, Demand, Evidence, Tick
from flyball_models import bucket
from flyball_models.anomaly import latency, tail
from flyball_streams.engine.budget import BUDGET_S, LATENCY_SHARE, score
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.packing import arrays, like, wiped

DETECTORS = "slow_answers", "no_answers"
"""Detectors by kind of evidence."""
METRICS = {
    "request": "flyball.workload.latency{stat=mean}",
    "output_token": "gen_ai.server.time_per_output_token{stat=mean}",
}
TAIL = tail.Config(
    least=0.4,
    prior_n=1.0,
    prior_excess=(0.2, 0.15),
    excess_n=4.0,
    prior_shape=(-0.05, -0.05),
    shape_n=128.0,
)
"""The tail of peaks is exponential in the model, with an excess of 1 / 8; how a fleet differs from that is learned."""
LEAST_GPUS = 0.01
MOST_PERIOD_S = 600.0
MOST_REQUESTS = 1e9
"""More is a telemetry error."""
GONE_NS = 3600 * NS_PER_S
Place = tuple[str, str, str]


class _Minute(NamedTuple):
    """Reports of a minute, by slot [N]: latency in s, requests, whether there were none, and the group of peers."""

    latency_s: NDArray[np.float32]
    requests: NDArray[np.float32]
    idle: NDArray[np.bool_]
    group: NDArray[np.int32]


class ReplicaLatencies:
    """Monitors the replicas of one cell's services.

    ``known`` has the slot of each workload, replica and node, and ``last_seen`` when it was last reported, in ns.
    """

    def __init__(self, cell: str, config: HealthConfig, directory: FleetIndex) -> None:
        self.cell, self.directory = cell, directory
        self.budget = LATENCY_SHARE * config.false_incidents_per_1000_gpu_days
        self.known: dict[Place, int] = {}
        self.last_seen: dict[Place, int] = {}
        self.last_ns = 0
        self.model = latency.init(0)
        self.tail = tail.init(len(DETECTORS), self.budget / BUDGET_S, TAIL)

    def step(self, tick: Tick, demands: dict[str, Demand]) -> Iterator[Anomaly]:
        """Anomalies of replicas, in a tick that ends a minute; repeated every ten minutes while they last."""
        reported = {name: demand for name, demand in demands.items() if demand.latencies}
        if not reported:
            return
        period_s = max(tick.period_ns, min(tick.end_ns - self.last_ns, round(MOST_PERIOD_S * NS_PER_S))) / NS_PER_S
        self.last_ns = tick.end_ns
        minute = self._place(reported, tick.end_ns)
        gpus = sum(d.devices for d in reported.values()) / max(1, sum(d.replicas for d in reported.values()))
        rate = self.budget / BUDGET_S / len(DETECTORS) * max(gpus, LEAST_GPUS)
        self.model, found = latency.step(
            self.model, minute.latency_s, minute.idle, minute.group, period_s, self.tail.limit
        )
        kind, slot = found.ended.nonzero()
        exposure_s = found.watched.sum(axis=1) * period_s
        peaks = found.ended[kind, slot].astype(np.float64)
        before = self.tail
        self.tail = tail.step(before, kind, peaks, exposure_s, period_s, rate, len(np.unique(slot)), TAIL)
        if not found.ratio.any():
            return
        places = {slot: place for place, slot in self.known.items()}
        for of, at in np.argwhere(found.ratio).tolist():
            ratio = found.ratio[of, [at]].astype(np.float64)
            per_replica = float(tail.rates(before, np.array([of]), ratio, TAIL)[0]) * len(DETECTORS)
            yield self._anomaly(tick, of, places[at], reported, minute, found, at, per_replica / max(gpus, LEAST_GPUS))

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "known": [[*place, slot, self.last_seen[place]] for place, slot in self.known.items()],
            "last_ns": self.last_ns,
            "room": len(self.model.seen),
            "model": arrays(self.model),
            "tail": arrays(self.tail),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.known = {(workload, replica, node): slot for workload, replica, node, slot, _ in state["known"]}
        self.last_seen = {(workload, replica, node): at for workload, replica, node, _, at in state["known"]}
        self.last_ns = state["last_ns"]
        self.model = like(latency.init(state["room"]), state["model"])
        self.tail = like(self.tail, state["tail"])

    def _place(self, reported: dict[str, Demand], now_ns: int) -> _Minute:
        """Assign a slot to each replica, and free those of replicas that are gone."""
        rows: list[tuple[Place, float | None, float | None, bool, int]] = []
        groups: dict[tuple[str, str], int] = {}
        for name, demand in reported.items():
            per = _per(demand)
            for part in demand.latencies:
                group = groups.setdefault((name, part.model), len(groups))
                for replica, node, latency_s, requests in zip(
                    part.replicas, part.nodes, part.latency_s, part.requests, strict=False
                ):
                    inside = latency_s is not None and latency.LEAST_S <= latency_s <= latency.MOST_S
                    other = latency_s is not None and (part.per != per or not inside)  # it answers, but is not compared
                    idle = other or (latency_s is None and requests is not None and requests <= 0.0)
                    rows.append(((name, replica, node), None if other else latency_s, requests, idle, group))
        new = [place for place, *_ in rows if place not in self.known]
        if new:
            self._make_room(list(dict.fromkeys(new)), {place for place, *_ in rows}, now_ns)
        n = len(self.model.seen)
        minute = _Minute(
            latency_s=np.full(n, np.nan, np.float32),
            requests=np.full(n, np.nan, np.float32),
            idle=np.zeros(n, np.bool_),
            group=np.full(n, -1, np.int32),
        )
        for place, latency_s, requests, idle, group in rows:
            slot = self.known[place]
            self.last_seen[place] = now_ns
            minute.group[slot], minute.idle[slot] = group, idle
            if latency_s is not None:
                minute.latency_s[slot] = latency_s
            if requests is not None and abs(requests) <= MOST_REQUESTS:
                minute.requests[slot] = requests
        return minute

    def _make_room(self, new: list[Place], here: set[Place], now_ns: int) -> None:
        gone = [p for p, at_ns in self.last_seen.items() if now_ns - at_ns > GONE_NS and p not in here]
        if gone:
            slots = [self.known.pop(place) for place in gone]
            for place in gone:
                del self.last_seen[place]
            self.model = wiped(self.model, latency.init(len(self.model.seen)), slots)
        room = bucket(len(self.known) + len(new))
        if room > len(self.model.seen):
            self.model = latency.resize(self.model, room)
        taken = set(self.known.values())
        free = (slot for slot in range(len(self.model.seen)) if slot not in taken)
        self.known.update(zip(new, free, strict=False))

    def _anomaly(
        self,
        tick: Tick,
        kind: int,
        place: Place,
        reported: dict[str, Demand],
        minute: _Minute,
        found: latency.Found,
        slot: int,
        false_per_gpu_s: float,
    ) -> Anomaly:
        workload, replica, node = place
        expected_s, slower = float(found.expected_s[slot]), float(found.slower[slot])
        since_s, requests = float(found.since_s[kind, slot]), float(minute.requests[slot])
        metric = METRICS[_per(reported[workload])]
        if kind == latency.SLOWER:
            evidence = [
                Evidence(name=metric, value=expected_s * (1.0 + slower), expected=expected_s, unit="s"),
                Evidence(name="slow_answers.slower", value=slower, expected=0.0),
            ]
        else:
            evidence = [Evidence(name="no_answers.time", value=since_s, unit="s")]
        if np.isfinite(requests):
            evidence.append(Evidence(name="flyball.workload.request.active", value=requests, unit="{request}"))
        device = self._device(workload, replica, node)
        return Anomaly(
            id=record_id("Anomaly", self.cell, "/".join(place), DETECTORS[kind], tick.index),
            subject=device or node,
            cell=self.cell,
            node=node,
            time_ns=tick.end_ns,
            detector=DETECTORS[kind],
            score=score(false_per_gpu_s * BUDGET_S, self.budget),
            evidence=tuple(evidence),
            workload=workload if device else "",
            since_ns=max(0, tick.end_ns - round(since_s * NS_PER_S)),
            false_per_1000_gpu_days=false_per_gpu_s * BUDGET_S,
        )

    def _device(self, workload: str, replica: str, node: str) -> str:
        """First GPU of a replica on a node, empty without one."""
        inventory = self.directory.inventories.get(node)
        rows = [row for part in self.directory.parts(workload, replica) if part.node == node for row in part.devices]
        return inventory.devices[rows[0]].id if inventory is not None and rows else ""


def _per(demand: Demand) -> str:
    """What the replicas of a workload are compared by: output tokens where one of them reports them."""
    return max((part.per for part in demand.latencies), key=lambda per: per == "output_token")
