"""Stragglers of gangs that span node lanes: this lane receives the clocks of all their members.

Peers have the same GPU model: a gang on two models is two groups. The rule is the same as in the node lane, which
compares the gangs that it sees whole: ``FAR_Z`` robust deviations below the median in ``SLOW_TICKS`` of the last
``OF_TICKS``.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from operator import itemgetter
from typing import Any

from flyball_contracts.ids import record_id
from flyball_contracts.records import Anomaly, Clocks, Demand, Evidence, Member, Proposal, Tick
from flyball_models.anomaly.peers import FAR_Z, LEAST_PEERS, OF_TICKS, SLOW_TICKS
from flyball_streams.engine.workload.proposals import Proposals

SD_PER_MAD = 1.4826
FLOOR = 0.01
"""Smallest relevant difference between peers, as a share of the clock."""
MOST_HZ = 1e15
"""A clock above this is a telemetry error."""
REPEAT_TICKS = 30


class Stragglers:
    """Monitors slow members of the gangs of one cell.

    Bit i of ``history`` is set if a device was slow i ticks ago; ``reported`` is the tick of its last anomaly.
    """

    def __init__(self, cell: str) -> None:
        self.cell = cell
        self.history: dict[str, int] = {}
        self.reported: dict[str, int] = {}

    def step(self, tick: Tick, demands: dict[str, Demand], proposals: Proposals) -> Iterator[Anomaly]:
        """Anomalies of a tick; a proposal to move each straggler is added to ``proposals``."""
        slow: dict[str, tuple[str, Member, float, float, int]] = {}
        peers = [
            (workload, tuple(group for group in demand.clocks if group.model == model))
            for workload, demand in sorted((name, demand) for name, demand in demands.items() if demand.clocks)
            for model in dict.fromkeys(group.model for group in demand.clocks)
        ]
        for workload, clocks in peers:
            members = sum(group.members for group in clocks)
            if members < LEAST_PEERS or not _may_be_slow(clocks, FAR_Z):
                continue
            median, spread = _middle(clocks)
            for member in (member for group in clocks for member in group.slowest):
                z = (member.clock_hz - median) / spread
                if z < -FAR_Z:
                    slow[member.device] = workload, member, z, median, members
        window = (1 << OF_TICKS) - 1
        history = {d: (self.history.get(d, 0) << 1 | (d in slow)) & window for d in self.history.keys() | slow.keys()}
        self.history = {device: bits for device, bits in sorted(history.items()) if bits}
        self.reported = {d: i for d, i in self.reported.items() if 0 <= tick.index - i < REPEAT_TICKS}
        for device, (workload, member, z, median, members) in slow.items():
            if self.history[device].bit_count() < SLOW_TICKS or device in self.reported:
                continue
            self.reported[device] = tick.index
            anomaly = self._anomaly(tick, workload, member, z, median)
            yield anomaly
            proposal = self._proposal(tick, workload, member, anomaly, median, members)
            proposals.new[proposal.id] = proposal

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"history": self.history, "reported": self.reported}

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.history, self.reported = dict(state["history"]), dict(state["reported"])

    def _anomaly(self, tick: Tick, workload: str, member: Member, z: float, median: float) -> Anomaly:
        group = (
            ("nvidia.gpu.clock.frequency{clock=sm}", member.clock_hz, median, "Hz"),
            ("hw.temperature{sensor=gpu}", member.temperature_cel, None, "Cel"),
            ("hw.power", member.power_w, None, "W"),
        )
        return Anomaly(
            id=record_id("Anomaly", self.cell, member.device, "straggling", tick.index),
            subject=member.device,
            cell=self.cell,
            node=member.node,
            time_ns=tick.end_ns,
            detector="straggling",
            score=1.0 - 1.0 / (1.0 + abs(z)),
            evidence=tuple(Evidence(name=n, value=v, expected=e, unit=u) for n, v, e, u in group if v is not None),
            workload=workload,
        )

    def _proposal(
        self, tick: Tick, workload: str, member: Member, anomaly: Anomaly, median: float, members: int
    ) -> Proposal:
        return Proposal(
            id=record_id("Proposal", "migrate", self.cell, member.device, tick.index),
            action="migrate",
            workload=workload,
            reason=f"device {member.device} of {member.node} is straggling: its SM clock is "
            f"{member.clock_hz / 1e6:.0f} MHz where its {members - 1} peers run at {median / 1e6:.0f} MHz, in "
            f"{SLOW_TICKS} of the last {OF_TICKS} ticks",
            replica=member.replica,
            node=member.node,
            device=member.device,
            confidence=0.8,
            evidence=(*anomaly.evidence, Evidence(name="anomaly", value=anomaly.score, record=anomaly.id)),
        )


def _may_be_slow(clocks: tuple[Clocks, ...], peer_z: float) -> bool:
    """Whether any member is far below the fastest: a quick check before the comparison with the median."""
    least = max((group.clocks_hz[-1] for group in clocks if group.clocks_hz), default=0.0) * (1.0 - peer_z * FLOOR)
    return any(group.slowest[0].clock_hz < least for group in clocks if group.slowest)


def _middle(clocks: tuple[Clocks, ...]) -> tuple[float, float]:
    """Median and robust spread of all members, Hz; quantiles are weighted by the members they stand for."""
    weighted: list[tuple[float, float]] = []
    for group in clocks:
        weight = max(1.0, group.members / max(1, len(group.clocks_hz)))
        weighted += [(clock_hz, weight) for clock_hz in group.clocks_hz if abs(clock_hz) < MOST_HZ]
    if not weighted:
        return math.nan, math.nan
    median = _median(weighted)
    spread = _median([(abs(clock_hz - median), weight) for clock_hz, weight in weighted])
    return median, SD_PER_MAD * spread + FLOOR * max(median, 1.0)


def _median(weighted: list[tuple[float, float]]) -> float:
    """Median of values with weights; the mean of the middle two values if half of the weight is on either side."""
    weighted = sorted(weighted, key=itemgetter(0))
    upto = list(accumulate(map(itemgetter(1), weighted)))
    half = upto[-1] / 2.0
    return (weighted[bisect_left(upto, half)][0] + weighted[bisect_right(upto, half)][0]) / 2.0
