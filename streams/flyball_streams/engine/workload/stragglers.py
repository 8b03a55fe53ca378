"""Stragglers of gangs that span node lanes: their members are compared where all lanes' clocks come together.

Peers are those of one GPU model: a gang on two models is two groups. The rule is that of the node lane, which judges
the gangs that it sees whole: ``FAR_Z`` robust deviations below the median in ``SLOW_TICKS`` of the last ``OF_TICKS``.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import record_id
from flyball_contracts.records import Anomaly, Clocks, Demand, Evidence, Member, Proposal, Tick
from flyball_models.anomaly.peers import FAR_Z, LEAST_PEERS, OF_TICKS, SLOW_TICKS
from flyball_streams.engine.workload.proposals import Proposals

SD_PER_MAD = 1.4826
FLOOR = 0.01
"""A difference between healthy peers that is not worth noticing, as a share of the clock."""
MOST_HZ = 1e15
"""A clock above this is a fault of the sender."""
REMIND_TICKS = 30
Floats = NDArray[np.float64]


class Stragglers:
    """Follows the slow members of the gangs of one cell: ``history`` has bit i set when one was slow i ticks ago."""

    def __init__(self, cell: str) -> None:
        self.cell = cell
        self.history: dict[str, int] = {}
        self.reminded: dict[str, int] = {}

    def step(self, tick: Tick, demands: dict[str, Demand], proposals: Proposals) -> Iterator[Anomaly]:
        """Anomalies of a tick; a proposal to move each straggler is among ``proposals``."""
        slow: dict[str, tuple[str, Member, float, float, int]] = {}
        peers = [
            (workload, tuple(told for told in demand.clocks if told.model == model))
            for workload, demand in sorted(demands.items())
            for model in dict.fromkeys(told.model for told in demand.clocks)
        ]
        for workload, clocks in peers:
            members = sum(told.members for told in clocks)
            if members < LEAST_PEERS or not _may_be_slow(clocks, FAR_Z):
                continue
            median, spread = _middle(clocks)
            for one in (one for told in clocks for one in told.slowest):
                z = (one.clock_hz - median) / spread
                if z < -FAR_Z:
                    slow[one.device] = workload, one, z, median, members
        window = (1 << OF_TICKS) - 1
        history = {d: (self.history.get(d, 0) << 1 | (d in slow)) & window for d in self.history.keys() | slow.keys()}
        self.history = {device: bits for device, bits in sorted(history.items()) if bits}
        self.reminded = {d: i for d, i in self.reminded.items() if 0 <= tick.index - i < REMIND_TICKS}
        for device, (workload, one, z, median, members) in slow.items():
            if self.history[device].bit_count() < SLOW_TICKS or device in self.reminded:
                continue
            self.reminded[device] = tick.index
            anomaly = self._anomaly(tick, workload, one, z, median)
            yield anomaly
            proposal = self._proposal(tick, workload, one, anomaly, median, members)
            proposals.new[proposal.id] = proposal

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"history": self.history, "reminded": self.reminded}

    def load(self, state: dict[str, Any]) -> None:
        """Take on the state of a snapshot."""
        self.history, self.reminded = dict(state["history"]), dict(state["reminded"])

    def _anomaly(self, tick: Tick, workload: str, one: Member, z: float, median: float) -> Anomaly:
        told = (
            ("nvidia.gpu.clock.frequency{clock=sm}", one.clock_hz, median, "Hz"),
            ("hw.temperature{sensor=gpu}", one.temperature_cel, None, "Cel"),
            ("hw.power", one.power_w, None, "W"),
        )
        return Anomaly(
            id=record_id("Anomaly", self.cell, one.device, "straggling", tick.index),
            subject=one.device,
            cell=self.cell,
            node=one.node,
            time_ns=tick.end_ns,
            detector="straggling",
            score=1.0 - 1.0 / (1.0 + abs(z)),
            evidence=tuple(Evidence(name=n, value=v, expected=e, unit=u) for n, v, e, u in told if v is not None),
            workload=workload,
        )

    def _proposal(
        self, tick: Tick, workload: str, one: Member, anomaly: Anomaly, median: float, members: int
    ) -> Proposal:
        return Proposal(
            id=record_id("Proposal", "migrate", self.cell, one.device, tick.index),
            action="migrate",
            workload=workload,
            reason=f"device {one.device} of {one.node} is straggling: its SM clock is {one.clock_hz / 1e6:.0f} MHz "
            f"where its {members - 1} peers run at {median / 1e6:.0f} MHz, in {SLOW_TICKS} of the last "
            f"{OF_TICKS} ticks",
            replica=one.replica,
            node=one.node,
            device=one.device,
            confidence=0.8,
            evidence=(*anomaly.evidence, Evidence(name="anomaly", value=anomaly.score, record=anomaly.id)),
        )


def _may_be_slow(clocks: tuple[Clocks, ...], peer_z: float) -> bool:
    """Whether anyone is far enough below the fastest; who is not cannot be below the median, which takes longer."""
    least = max((told.clocks_hz[-1] for told in clocks if told.clocks_hz), default=0.0) * (1.0 - peer_z * FLOOR)
    return any(told.slowest[0].clock_hz < least for told in clocks if told.slowest)


def _middle(clocks: tuple[Clocks, ...]) -> tuple[float, float]:
    """Median and robust spread of all members, Hz; quantiles stand for as many members as they were made of."""
    parts = [np.array(told.clocks_hz, np.float64) for told in clocks]
    each = [max(1.0, told.members / max(1, len(told.clocks_hz))) for told in clocks]
    weights = np.concatenate([np.full(len(part), weight) for part, weight in zip(parts, each, strict=True)])
    values = np.concatenate(parts)
    known = np.abs(values) < MOST_HZ
    if not known.any():
        return math.nan, math.nan
    median = _median(values[known], weights[known])
    return median, SD_PER_MAD * _median(np.abs(values[known] - median), weights[known]) + FLOOR * max(median, 1.0)


def _median(values: Floats, weights: Floats) -> float:
    """Weighted median, the mean of the middle two where the weights are cut in half between them."""
    order = np.argsort(values, kind="stable")
    upto: Floats = np.cumsum(weights[order])
    half = upto[-1] / 2.0
    low, high = int(np.argmax(upto >= half)), int(np.argmax(upto > half))
    return (float(values[order[low]]) + float(values[order[high]])) / 2.0
