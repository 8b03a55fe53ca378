"""Hosts that slow down their GPUs' work: tasks wait for CPU, memory or disks, or network ports have errors.

A step of a gang takes as long as on its slowest node, so a slow gang does not show which node is slow. Pressure stall
information (PSI, Linux 4.20) does: it is the share of time in which some task waited. A node is reported once that
share has been large, and several times its usual value, for a minute. Healthy ports have almost no errors, so the rule
for links applies to them. Neither rule compares peers or spends the budget of false incidents.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.metrics import HOST
from flyball_contracts.records import Anomaly, Evidence, Tick
from flyball_models.anomaly import link_errors
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.packing import arrays, like, wiped

RESOURCES = ("cpu", "memory", "io")
WAITS = tuple(f"system.linux.psi.total_time{{resource={kind},stall=some}}" for kind in RESOURCES)
ERRORS = tuple(f"system.network.errors{{direction={way}}}" for way in ("receive", "transmit"))
WAIT_COLUMNS, ERROR_COLUMNS = ([HOST.column(key) for key in keys] for keys in (WAITS, ERRORS))
LEAST, TIMES = 0.2, 4.0
"""Share of time in which some task waits, and its ratio to the usual share."""
LASTS_S, WARM_S, USUAL_S = 60.0, 300.0, 3600.0
AGAIN_NS = 300 * NS_PER_S
NoisyNeighbour = Callable[[str, str], Evidence | None]
"""Returns evidence of a noisy neighbour for a node and a resource."""


class State(NamedTuple):
    """Float32 [3, N]: usual share of waits, and how long it has been high, s.

    [N]: ``seen_s``, how long it was observed, s.
    """

    usual: NDArray[np.float32]
    high_s: NDArray[np.float32]
    seen_s: NDArray[np.float32]


def init(n: int) -> State:
    """State of ``n`` hosts without observations."""
    shape = len(WAITS), n
    return State(np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.zeros(n, np.float32))


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
        self.reported: dict[str, int] = {}

    def resize(self, capacity: int) -> None:
        """Make room for more hosts."""
        self.waits = resize(self.waits, capacity)
        self.ports = link_errors.resize(self.ports, capacity)

    def wipe(self, slots: list[int]) -> None:
        """Reset slots that belong to another host now, or do other work."""
        if slots:
            self.waits = wiped(self.waits, init(len(self.waits.seen_s)), slots)
            self.ports = wiped(self.ports, link_errors.init(self.ports.errors.shape[1]), slots)

    def step(
        self, tick: Tick, table: SubjectTable, means: Means, works: NDArray[np.bool_], noisy_neighbour: NoisyNeighbour
    ) -> Iterator[Anomaly]:
        """Hosts that slow down work, each repeated every five minutes; ``works`` [N] marks hosts with work.

        ``noisy_neighbour`` names the workload that takes a resource of a node from others.
        """
        period_s = tick.period_ns / NS_PER_S
        share = means.values[:, WAIT_COLUMNS].T / np.float32(period_s)
        loud = self._wait(share, means.elapsed_s)
        errors = means.values[:, ERROR_COLUMNS].T * (means.elapsed_s / period_s)
        new = np.nan_to_num(errors).astype(np.float64)
        self.ports, struck = link_errors.step(self.ports, new, tick.end_ns / NS_PER_S, means.elapsed_s)
        self.reported = {key: at_ns for key, at_ns in self.reported.items() if 0 <= tick.end_ns - at_ns < AGAIN_NS}
        for slot in np.flatnonzero((loud.any(axis=0) | struck.any(axis=0)) & works).tolist():
            name = table.names[slot]
            if loud[:, slot].any() and self._is_new("pressure", name, tick):
                worst = sorted(np.flatnonzero(loud[:, slot]).tolist(), key=lambda kind: -float(share[kind, slot]))
                evidence = [
                    Evidence(name=WAITS[k], value=float(share[k, slot]), expected=float(self.waits.usual[k, slot]))
                    for k in worst
                ]
                neighbour = noisy_neighbour(name, RESOURCES[worst[0]])
                since_s = tick.end_ns / NS_PER_S - float(self.waits.high_s[worst[0], slot])
                yield self._anomaly(tick, name, "pressure", ([neighbour] if neighbour else []) + evidence, since_s)
            if struck[:, slot].any() and self._is_new("network", name, tick):
                kinds: list[int] = np.flatnonzero(struck[:, slot]).tolist()
                evidence = [
                    Evidence(name=ERRORS[k], value=float(self.ports.errors[k, slot]), expected=0.0, unit="{error}")
                    for k in kinds
                ]
                yield self._anomaly(tick, name, "network", evidence, float(self.ports.since_s[kinds, slot].min()))

    def _is_new(self, detector: str, name: str, tick: Tick) -> bool:
        key = f"{detector} {name}"
        if key in self.reported:
            return False
        self.reported[key] = tick.end_ns
        return True

    def _wait(self, share: NDArray[np.float32], period_s: float) -> NDArray[np.bool_]:
        """Update with a tick; return where the share has been high for long enough, [3, N]."""
        usual, high_s, seen_s = self.waits
        known, period = np.isfinite(share), np.float32(period_s)
        warm = seen_s >= WARM_S
        with np.errstate(invalid="ignore"):
            high = known & warm & (share >= LEAST) & (share >= TIMES * usual)
        high_s = np.where(known, np.where(high, high_s + period, np.float32(0.0)), high_s)
        seen_s = np.where(known.any(axis=0), seen_s + period, seen_s)
        pace = np.minimum(1.0, np.maximum(period / np.maximum(seen_s, period), period / np.float32(USUAL_S)))
        usual = usual + np.where(known, pace.astype(np.float32) * (np.nan_to_num(share) - usual), np.float32(0.0))
        self.waits = State(usual, high_s, seen_s)
        return high & (high_s >= LASTS_S)

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
        return {"waits": arrays(self.waits), "ports": arrays(self.ports), "reported": self.reported}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        self.waits = like(init(capacity), state["waits"])
        self.ports = like(link_errors.init(capacity), state["ports"])
        self.reported = dict(state["reported"])
