"""Hosts that slow down their GPUs' work: tasks wait for CPU, memory or disks, or network ports have errors.

A step of a gang takes as long as on its slowest node, so a slow gang does not show which node is slow. Pressure stall
information (PSI, Linux 4.20) does: it is the share of time in which some task waited. A node is reported once that
share has been large, and several times its usual value, for a minute. Healthy ports have almost no errors, so the rule
for links applies to them.

Healthy hosts wait, too: for a checkpoint, a reload or a nightly backup. How long they do, and how many errors a healthy
port has, is learned from all hosts of the cell: of each wait or burst of errors the largest size goes into a tail, and
a host is reported beyond what the budget of false incidents allows. In a fleet that never showed such a thing the
rules' own limits apply. Of hosts that do the same work and wait together only the one that waits most is reported.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.metrics import HOST
from flyball_contracts.records import Anomaly, Evidence, Tick
from flyball_models.anomaly import link_errors, tail
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.packing import arrays, like, wiped

RESOURCES = ("cpu", "memory", "io")
WAITS = tuple(f"system.linux.psi.total_time{{resource={kind},stall=some}}" for kind in RESOURCES)
ERRORS = tuple(f"system.network.errors{{direction={way}}}" for way in ("receive", "transmit"))
WAIT_COLUMNS, ERROR_COLUMNS = (np.array([HOST.column(key) for key in keys]) for keys in (WAITS, ERRORS))
KINDS = len(WAITS) + len(ERRORS)
LEAST, TIMES = 0.2, 4.0
"""Share of time in which some task waits, and its ratio to the usual share."""
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
often; two waits in its first hours show which fleet it is."""
MOST = 20.0
"""A host that waits for twenty minutes is always reported."""
NoisyNeighbour = Callable[[str, str], Evidence | None]
"""Returns evidence of a noisy neighbour for a node and a resource."""


class State(NamedTuple):
    """Float32 [3, N]: usual share of waits, and how long it has been high, s.

    [N]: ``seen_s``, how long it was observed, s. ``peak`` float32 [5, N], waits and ports, is the largest size of what
    lasts; ``doubt_s`` float32 [5, N] is the time until the tail learns again from a reported host.
    """

    usual: NDArray[np.float32]
    high_s: NDArray[np.float32]
    seen_s: NDArray[np.float32]
    peak: NDArray[np.float32]
    doubt_s: NDArray[np.float32]


def init(n: int) -> State:
    """State of ``n`` hosts without observations."""
    shapes = (len(WAITS), n), (len(WAITS), n), (n,), (KINDS, n), (KINDS, n)
    return State._make(np.zeros(shape, np.float32) for shape in shapes)


def resize(state: State, n: int) -> State:
    """The state with room for ``n`` hosts, at least as many as before."""
    fresh = init(n)
    for new, old in zip(fresh, state, strict=True):
        new[..., : old.shape[-1]] = old
    return fresh


class Pressure:
    """Monitors the hosts of one cell; ``reported`` is the time of the last report, by detector and name, ns."""

    def __init__(self, cell: str, capacity: int) -> None:
        self.cell = cell
        self.waits = init(capacity)
        self.ports = link_errors.init(capacity)
        self.tail = _unseen()
        self.reported: dict[str, int] = {}

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return len(self.waits.seen_s)

    def resize(self, capacity: int) -> None:
        """Make room for more hosts."""
        self.waits = resize(self.waits, capacity)
        self.ports = link_errors.resize(self.ports, capacity)

    def wipe(self, slots: list[int]) -> None:
        """Reset slots that belong to another host now, or do other work."""
        if slots := [slot for slot in slots if slot < self.capacity]:
            self.waits = wiped(self.waits, init(self.capacity), slots)
            self.ports = wiped(self.ports, link_errors.init(self.ports.errors.shape[1]), slots)

    def step(
        self,
        tick: Tick,
        table: SubjectTable,
        means: Means,
        work: NDArray[np.int32],
        rate: float,
        noisy_neighbour: NoisyNeighbour,
    ) -> Iterator[Anomaly]:
        """Hosts that slow down work, each repeated every five minutes.

        ``work`` [N] numbers the work of hosts, equal numbers for the same work, -1 for none. ``rate`` is how often a
        healthy host may be reported, per second. ``noisy_neighbour`` names the workload that takes a resource of a node
        from others.
        """
        period_s = tick.period_ns / NS_PER_S
        share = means.values.take(WAIT_COLUMNS, axis=1).T / np.float32(period_s)
        waits = self._wait(share, means.elapsed_s)
        errors = means.values.take(ERROR_COLUMNS, axis=1).T * (means.elapsed_s / period_s)
        now_s, struck = tick.end_ns / NS_PER_S, np.zeros(errors.shape, np.bool_)
        if (errors > 0).any():  # hardly ever
            new = np.nan_to_num(errors).astype(np.float64)
            self.ports, struck = link_errors.step(self.ports, new, now_s, means.elapsed_s)
        size = np.concatenate([self.waits.high_s / np.float32(LASTS_S), self._bursts(now_s, means.elapsed_s)])
        loud = np.concatenate([waits, struck]) & (size >= self.tail.limit[:, None]) & (work >= 0)
        self._learn(size, work, means.elapsed_s, rate / KINDS)
        self.reported = {key: at_ns for key, at_ns in self.reported.items() if 0 <= tick.end_ns - at_ns < AGAIN_NS}
        held_up, errors_of = loud[: len(WAITS)], loud[len(WAITS) :]
        together = self._together(share, work) if held_up.any() else {}
        slots: list[int] = np.flatnonzero(loud.any(axis=0)).tolist()
        for slot in sorted(slots, key=lambda s: (-float(np.where(held_up[:, s], share[:, s], 0.0).max()), s)):
            name = table.names[slot]
            if held_up[:, slot].any():
                worst = sorted(np.flatnonzero(held_up[:, slot]).tolist(), key=lambda kind: -float(share[kind, slot]))
                if self._is_new("pressure", together.get((worst[0], int(work[slot])), name), tick):
                    yield self._waiting(tick, slot, name, share, worst, noisy_neighbour)
            if errors_of[:, slot].any() and self._is_new("network", name, tick):
                kinds: list[int] = np.flatnonzero(errors_of[:, slot]).tolist()
                evidence = [
                    Evidence(name=ERRORS[k], value=float(self.ports.errors[k, slot]), expected=0.0, unit="{error}")
                    for k in kinds
                ]
                yield self._anomaly(tick, name, "network", evidence, float(self.ports.since_s[kinds, slot].min()))

    def _waiting(
        self,
        tick: Tick,
        slot: int,
        name: str,
        share: NDArray[np.float32],
        worst: list[int],
        noisy_neighbour: NoisyNeighbour,
    ) -> Anomaly:
        evidence = [
            Evidence(name=WAITS[k], value=float(share[k, slot]), expected=float(self.waits.usual[k, slot]))
            for k in worst
        ]
        neighbour = noisy_neighbour(name, RESOURCES[worst[0]])
        since_s = tick.end_ns / NS_PER_S - float(self.waits.high_s[worst[0], slot])
        return self._anomaly(tick, name, "pressure", ([neighbour] if neighbour else []) + evidence, since_s)

    def _together(self, share: NDArray[np.float32], work: NDArray[np.int32]) -> dict[tuple[int, int], str]:
        """A common name of the hosts of a work, three or more, half of which wait for a resource at the same time."""
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
        """Errors of ports as they count now, in what is enough for the rule, [2, N]."""
        faded = math.exp(-max(now_s - float(self.ports.at_s[0]), 0.0) / link_errors.WINDOW_S)
        return (self.ports.weight * (faded / link_errors.enough(period_s))).astype(np.float32)

    def _wait(self, share: NDArray[np.float32], period_s: float) -> NDArray[np.bool_]:
        """Update with a tick; return where the share is high, [3, N]."""
        usual, high_s, seen_s = self.waits[:3]
        known, period = np.isfinite(share), np.float32(period_s)
        warm = seen_s >= WARM_S
        with np.errstate(invalid="ignore"):
            high = known & warm & (share >= LEAST) & (share >= TIMES * usual)
        high_s = np.where(known, np.where(high, high_s + period, np.float32(0.0)), high_s)
        seen_s = np.where(known.any(axis=0), seen_s + period, seen_s)
        pace = np.minimum(1.0, np.maximum(period / np.maximum(seen_s, period), period / np.float32(USUAL_S)))
        learns = known & ~(high & (high_s < ACCEPT_S))
        usual = usual + np.where(learns, pace.astype(np.float32) * (share - usual), np.float32(0.0))
        self.waits = self.waits._replace(usual=usual, high_s=high_s, seen_s=seen_s)
        return high

    def _learn(self, size: NDArray[np.float32], work: NDArray[np.int32], period_s: float, rate: float) -> None:
        """Add what has ended to the tail; of hosts that do the same work, the largest of a tick."""
        peak, doubt_s = np.maximum(self.waits.peak, size), np.maximum(self.waits.doubt_s - np.float32(period_s), 0.0)
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
        watched = float(np.count_nonzero(self.waits.seen_s >= WARM_S)) * period_s
        known = tail.step(self.tail, stratum, value, np.full(KINDS, watched), period_s, rate, events, HEALTHY)
        if known.limit is not self.tail.limit:
            known = known._replace(limit=np.clip(known.limit, 1.0, MOST))
        self.tail = known
        self.waits = self.waits._replace(
            peak=np.where(ended, size, peak).astype(np.float32), doubt_s=doubt_s.astype(np.float32)
        )

    def _anomaly(self, tick: Tick, name: str, detector: str, evidence: list[Evidence], since_s: float) -> Anomaly:
        return Anomaly(
            id=record_id("Anomaly", self.cell, name, detector, tick.index),
            subject=name,
            cell=self.cell,
            node=name,
            time_ns=tick.end_ns,
            detector=detector,
            score=0.8,
            evidence=tuple(evidence),
            since_ns=max(0, min(round(since_s * NS_PER_S), tick.end_ns)),
        )

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "waits": arrays(self.waits),
            "ports": arrays(self.ports),
            "tail": arrays(self.tail),
            "reported": self.reported,
        }

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot, which may have been written before the room for new hosts."""
        had = state["waits"][-1].shape[-1]
        self.waits = like(init(had), state["waits"])
        self.ports = like(link_errors.init(had), state["ports"])
        self.resize(capacity)
        self.tail = like(_unseen(), state["tail"])
        self.reported = dict(state["reported"])


def _unseen() -> tail.State:
    """The tail before anything was seen: the rules' own limits hold."""
    return tail.init(KINDS, 1.0, HEALTHY)._replace(limit=np.ones(KINDS))
