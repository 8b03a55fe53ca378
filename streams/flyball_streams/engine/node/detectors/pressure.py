"""Hosts that slow down their GPUs' work: tasks wait for CPU, memory or disks, or network ports have errors.

A step of a gang takes as long as on its slowest node, so a slow gang does not show which node is slow. Pressure stall
information (PSI, Linux 4.20) does: it is the share of time in which some task waited. A node is reported once that
share has been large, and several times its usual value, for a minute. Healthy ports have almost no errors, so the rule
for links applies to them.

Healthy hosts wait, too: for a checkpoint, a reload or a nightly backup. How long they wait, and how many errors a
healthy port has, is learned from all hosts of the cell: the largest size of each wait or burst of errors goes into a
tail, and a host is reported if it exceeds what the budget of false incidents allows. In a fleet that never showed any
wait or error, the rules' own limits apply. Of hosts that do the same work and wait together, only the one that waits
most is reported.

While a gang stands still, few errors of a port are reason enough to report one of its nodes: all ranks wait for one of
them, and healthy ports have almost no errors.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import HOST
from flyball_contracts.records import Anomaly, Evidence, Tick
from flyball_models.anomaly import link_errors, tail
from flyball_streams.engine.budget import HELD_UP_SHARE
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.detectors.neighbours import Neighbours
from flyball_streams.engine.packing import arrays, like

RESOURCES = ("cpu", "memory", "io")
WAITS = tuple(f"system.linux.psi.total_time{{resource={kind},stall=some}}" for kind in RESOURCES)
ERRORS = tuple(f"system.network.errors{{direction={way}}}" for way in ("receive", "transmit"))
WAIT_COLUMNS, ERROR_COLUMNS = (np.array([HOST.column(key) for key in keys]) for keys in (WAITS, ERRORS))
KINDS = len(WAITS) + len(ERRORS)
LEAST, TIMES = 0.2, 4.0
"""Share of time in which some task waits, and its ratio to the usual share."""
FEW = 0.25
"""Errors of a port that count while the gang of its node stands still, as a share of what is enough for the rule."""
SCORE = 0.8
LASTS_S, WARM_S, USUAL_S, ACCEPT_S = 60.0, 300.0, 3600.0, 3600.0
"""``USUAL_S`` is the time constant of the usual share, which does not learn a high share before ``ACCEPT_S``."""
AGAIN_NS = 300 * NS_PER_S
TRUST_S = 86_400.0
"""A reported host updates the tail at most once in this time."""
HEALTHY = tail.Config(
    least=0.5, prior_n=0.06, prior_s=250 * 86_400.0, prior_excess=(0.4, 0.4), prior_shape=(0.2, 0.2), shape_n=8.0,
    busy_share=0.001, busy_n=0.5, busy_s=10 * 86_400.0,
)  # fmt: skip
"""Sizes are multiples of the rules' own limits. Without observations, half a limit occurs once in 11 years of a host:
with the default budget the rules' limits apply. In one fleet of a thousand, healthy hosts wait every few weeks or more
often; two waits in the first hours show that a fleet is one of these."""
MOST = 20.0
"""A host that waits for twenty minutes is always reported."""


class State(NamedTuple):
    """``usual`` and ``high_s`` float32 [3, N]: the usual share of waits, and how long it has been high, s.

    ``seen_s`` [N] is how long a host was observed, s. ``peak`` float32 [5, N], waits and ports, is the largest size of
    a wait or burst that has not ended; ``doubt_s`` float32 [5, N] is the time until the tail learns again from a
    reported host, s. ``ports`` are the errors of ports.
    """

    usual: NDArray[np.float32]
    high_s: NDArray[np.float32]
    seen_s: NDArray[np.float32]
    peak: NDArray[np.float32]
    doubt_s: NDArray[np.float32]
    ports: link_errors.State


def init(n: int) -> State:
    """State of ``n`` hosts without observations."""
    shapes = (len(WAITS), n), (len(WAITS), n), (n,), (KINDS, n), (KINDS, n)
    return State._make((*(np.zeros(shape, np.float32) for shape in shapes), link_errors.init(n)))


class Pressure(Detector[State]):
    """Monitors the hosts of one cell; ``reported`` is the time of the last report, by detector and name, ns.

    ``neighbours`` names the workload that takes a resource of a node from others. ``hung`` gives the workloads that
    hang at a time in ns.
    """

    def __init__(self, hung: Callable[[int], set[str]], capacity: int) -> None:
        super().__init__(capacity, init)
        self.hung = hung
        self.tail = _unseen()
        self.reported: dict[str, int] = {}
        self.neighbours = Neighbours()

    def change_work(self, kinds: dict[int, str]) -> None:
        """Reset hosts whose work has changed."""
        self.reset(list(kinds))

    def step(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies of hosts that slow down work, each repeated every five minutes."""
        for inventory, frame in seen.usage:
            self.neighbours.note(inventory, frame.values, frame.period_ns / NS_PER_S, frame.time_ns)
        means = seen.hosts.means
        if means is None:
            return
        tick, table, work = seen.tick, seen.hosts, seen.work_of_hosts
        self.neighbours.keep(seen.inventories)
        period_s = tick.period_ns / NS_PER_S
        share = means.values.take(WAIT_COLUMNS, axis=1).T / np.float32(period_s)
        waits = self._wait(share, means.elapsed_s)
        errors = means.values.take(ERROR_COLUMNS, axis=1).T * (means.elapsed_s / period_s)
        now_s, struck = tick.end_ns / NS_PER_S, np.zeros(errors.shape, np.bool_)
        has_errors = bool((errors > 0).any())
        if has_errors:  # hardly ever
            new = np.nan_to_num(errors).astype(np.float64)
            ports, struck = link_errors.step(self.model.ports, new, now_s, means.elapsed_s)
            self.model = self.model._replace(ports=ports)
        size = np.concatenate([self.model.high_s / np.float32(LASTS_S), self._bursts(now_s, means.elapsed_s)])
        loud = np.concatenate([waits, struck]) & (size >= self.tail.limit[:, None]) & (work >= 0)
        if has_errors and (hung := self.hung(tick.end_ns)):
            loud[len(WAITS) :] |= (errors > 0) & (size[len(WAITS) :] >= FEW) & _hosts_of(hung, seen)
        self._learn(size, work, means.elapsed_s, HELD_UP_SHARE * seen.node_rate / KINDS)
        self.reported = {key: at_ns for key, at_ns in self.reported.items() if 0 <= tick.end_ns - at_ns < AGAIN_NS}
        held_up, errors_of = loud[: len(WAITS)], loud[len(WAITS) :]
        together = self._together(share, work) if held_up.any() else {}
        slots: list[int] = np.flatnonzero(loud.any(axis=0)).tolist()
        for slot in sorted(slots, key=lambda s: (-float(np.where(held_up[:, s], share[:, s], 0.0).max()), s)):
            name = table.names[slot]
            if held_up[:, slot].any():
                worst = sorted(np.flatnonzero(held_up[:, slot]).tolist(), key=lambda kind: -float(share[kind, slot]))
                if self._is_new("pressure", together.get((worst[0], int(work[slot])), name), tick):
                    yield self._waiting(seen, slot, share, worst)
            if errors_of[:, slot].any() and self._is_new("network", name, tick):
                kinds: list[int] = np.flatnonzero(errors_of[:, slot]).tolist()
                evidence = tuple(
                    Evidence(
                        name=ERRORS[k], value=float(self.model.ports.errors[k, slot]), expected=0.0, unit="{error}"
                    )
                    for k in kinds
                )
                since_ns = round(float(self.model.ports.since_s[kinds, slot].min()) * NS_PER_S)
                yield seen.anomaly(table, slot, "network", SCORE, evidence, since_ns)

    def _waiting(self, seen: CellTick, slot: int, share: NDArray[np.float32], worst: list[int]) -> Anomaly:
        evidence = tuple(
            Evidence(name=WAITS[k], value=float(share[k, slot]), expected=float(self.model.usual[k, slot]))
            for k in worst
        )
        end_ns, inventory = seen.tick.end_ns, seen.inventories[seen.hosts.names[slot]]
        neighbour = self.neighbours.noisy_neighbour(inventory, RESOURCES[worst[0]], end_ns)
        since_ns = round((end_ns / NS_PER_S - float(self.model.high_s[worst[0], slot])) * NS_PER_S)
        return seen.anomaly(
            seen.hosts, slot, "pressure", SCORE, (neighbour, *evidence) if neighbour else evidence, since_ns
        )

    def _together(self, share: NDArray[np.float32], work: NDArray[np.int32]) -> dict[tuple[int, int], str]:
        """A common name for three or more hosts with the same work, if half of them wait for a resource at once."""
        found: dict[tuple[int, int], str] = {}
        for number in np.unique(work[work >= 0]).tolist():
            mine = share[:, work == number]
            if mine.shape[1] >= 3:
                common: list[int] = np.flatnonzero(2 * (mine >= LEAST).sum(axis=1) >= mine.shape[1]).tolist()
                found |= {(kind, number): f"{RESOURCES[kind]} of all hosts of {number}" for kind in common}
        return found

    def _is_new(self, detector: str, name: str, tick: Tick) -> bool:
        key = f"{detector} {name}"
        if key in self.reported:
            return False
        self.reported[key] = tick.end_ns
        return True

    def _bursts(self, now_s: float, period_s: float) -> NDArray[np.float32]:
        """Errors of ports as they count now, as a multiple of what is enough for the rule, [2, N]."""
        faded = math.exp(-max(now_s - float(self.model.ports.at_s[0]), 0.0) / link_errors.WINDOW_S)
        return (self.model.ports.weight * (faded / link_errors.enough(period_s))).astype(np.float32)

    def _wait(self, share: NDArray[np.float32], period_s: float) -> NDArray[np.bool_]:
        """Update with a tick; return where the share is high, [3, N]."""
        usual, high_s, seen_s = self.model[:3]
        known, period = np.isfinite(share), np.float32(period_s)
        warm = seen_s >= WARM_S
        with np.errstate(invalid="ignore"):
            high = known & warm & (share >= LEAST) & (share >= TIMES * usual)
        high_s = np.where(known, np.where(high, high_s + period, np.float32(0.0)), high_s)
        seen_s = np.where(known.any(axis=0), seen_s + period, seen_s)
        pace = np.minimum(1.0, np.maximum(period / np.maximum(seen_s, period), period / np.float32(USUAL_S)))
        learns = known & ~(high & (high_s < ACCEPT_S))
        usual = usual + np.where(learns, pace.astype(np.float32) * (share - usual), np.float32(0.0))
        self.model = self.model._replace(usual=usual, high_s=high_s, seen_s=seen_s)
        return high

    def _learn(self, size: NDArray[np.float32], work: NDArray[np.int32], period_s: float, rate: float) -> None:
        """Add waits and bursts that have ended to the tail; of hosts with the same work, the largest of a tick."""
        peak, doubt_s = np.maximum(self.model.peak, size), np.maximum(self.model.doubt_s - np.float32(period_s), 0.0)
        ended = size < np.float32(0.5) * peak
        stratum, slot = np.nonzero(ended & (peak > HEALTHY.least))
        value, events = np.zeros(0), 0
        if len(stratum):
            was_reported = peak[stratum, slot] >= self.tail.limit[stratum]
            taken = ~was_reported | (doubt_s[stratum, slot] <= 0.0)
            doubt_s[stratum[was_reported], slot[was_reported]] = TRUST_S
            stratum, slot = stratum[taken], slot[taken]
            value = peak[stratum, slot].astype(np.float64)
            place = np.where(work[slot] >= 0, work[slot], len(work) + slot)
            order = np.lexsort((-value, place, stratum))
            stratum, place, value = stratum[order], place[order], value[order]
            first = np.append(True, (np.diff(stratum) != 0) | (np.diff(place) != 0))[: len(value)]
            stratum, value, events = stratum[first], value[first], len(np.unique(place[first]))
        watched = float(np.count_nonzero(self.model.seen_s >= WARM_S)) * period_s
        known = tail.step(self.tail, stratum, value, np.full(KINDS, watched), period_s, rate, events, HEALTHY)
        if known.limit is not self.tail.limit:
            known = known._replace(limit=np.clip(known.limit, 1.0, MOST))
        self.tail = known
        self.model = self.model._replace(
            peak=np.where(ended, size, peak).astype(np.float32), doubt_s=doubt_s.astype(np.float32)
        )

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            **super().state(),
            "tail": arrays(self.tail),
            "reported": self.reported,
            "neighbours": self.neighbours.state(),
        }

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self.tail = like(_unseen(), state["tail"])
        self.reported = dict(state["reported"])
        self.neighbours.load(state["neighbours"])


def _hosts_of(workloads: set[str], seen: CellTick) -> NDArray[np.bool_]:
    """Which hosts run some of the workloads, [N]."""
    slots, found = seen.hosts.slots, np.zeros(seen.hosts.capacity, np.bool_)
    names = [node for node, held in seen.tenancy.workloads_of_node.items() if not held.isdisjoint(workloads)]
    found[[slots[name] for name in names if name in slots]] = True
    return found


def _unseen() -> tail.State:
    """The tail before anything was seen: the rules' own limits hold."""
    return tail.init(KINDS, 1.0, HEALTHY)._replace(limit=np.ones(KINDS))
