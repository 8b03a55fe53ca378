"""Detects nodes that stopped sending without an announced stop of their agent.

Agents are killed and messages are late, and both pass by themselves. How long that takes is learned from all nodes of
the cell: the lengths of silences that ended go into a tail, and a node is reported once it is silent for longer than
the budget of false incidents allows.
"""

from collections.abc import Collection, Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import NodeEvent, Symptom, Tick
from flyball_models.anomaly import tail
from flyball_streams.engine.budget import SILENCE_SHARE
from flyball_streams.engine.node.detector import CellTick
from flyball_streams.engine.packing import arrays, like
from flyball_streams.engine.symptoms import NO_TELEMETRY

SILENT_S, MOST_S = 60.0, 240.0
"""Bounds of the silence after which a node is reported: the usual and the longest restart of an agent or a broker."""
UNIT_S = 30.0
ENDING = tail.Config(
    prior_n=1.0, prior_s=8 * 86_400.0, prior_excess=(0.3, 0.3), excess_n=4.0, prior_shape=(0.15, 0.15), shape_n=32.0,
    shapes=(0.0, 0.6),
)  # fmt: skip
"""Tail of silences that end, in ``UNIT_S``: by the prior, a node is silent for 30 s or more once in eight days.

A few silences may look as if none could be longer. But nothing ends a silence by a certain time, so the tail has no end
(shape 0 or more).
"""
GONE = 2
"""The tail does not learn a silence of this many times the limit: it was no agent that is slow to come back."""
TRUST_S = 86_400.0
"""A node that was reported and came back moves the tail at most once in this time."""
REPEAT_S = 60.0
LONGEST_S = 7 * 86_400.0
"""A silence is reported for at most this time, in closed ticks; then the node is forgotten."""
RETURN_S = 1800.0
"""A node that held work when its agent announced its stop is reported after this time: by then an upgrade or a reboot
is over, and nothing watches that work meanwhile."""
NOT_BACK = "its agent said that it stops and has not come back, though replicas hold GPUs there"
MOST_GONE = 4096
"""Most nodes that are remembered as gone; the oldest are dropped."""
_NOWHERE, _NO_SIZE = np.zeros(0, np.int64), np.zeros(0)


class Absences:
    """Counts the closed ticks since the last frame of each node of a cell.

    The lane reads one ``partition`` of the ``partitions`` of the telemetry topic (0: unknown). Frames of a node whose
    key belongs to another partition since partitions were added come to another lane: this one does not report it.

    ``count`` counts the ticks of the cell; ``last_seen`` has the count and tick index of each node's last frame, and
    ``reported`` the count of its last symptom. Ticks are counted instead of time: while no node sends, no tick closes
    and no node is reported. ``stopped`` are nodes whose agent announced its stop, with the tick and whether they held
    work: they show no symptom until they send again, or for ``RETURN_S`` if they held work. ``gone`` are silent nodes
    that the lane has dropped: they stay reported until they send again, their inventory is removed, or ``LONGEST_S`` is
    over. ``ended`` are the nodes whose silence ended since the last tick, with its length in ticks; ``doubted`` is the
    count at which a node that had been reported came back.
    """

    def __init__(self, partition: int = 0, partitions: int = 0) -> None:
        self.partition = partition
        self.partitions = partitions
        self.count = 0
        self.last_seen: dict[str, tuple[int, int]] = {}
        self.reported: dict[str, int] = {}
        self.stopped: dict[str, tuple[int, bool]] = {}
        self.gone: dict[str, None] = {}
        self.ended: dict[str, int] = {}
        self.doubted: dict[str, int] = {}
        self.tail = _unseen()

    def observe(self, nodes: Collection[str], index: int) -> None:
        """Note frames of nodes, in time or late."""
        now, last_seen = self.count, self.last_seen
        new, newest = (now, 0), (now + 1, index)
        for node in nodes:
            count, latest = last_seen.get(node, new)
            if count < now and node not in self.stopped:
                self.ended[node] = now - count
            last_seen[node] = newest if latest <= index else (now + 1, latest)
        if self.reported or self.gone or self.stopped:
            for node in nodes:
                self.reported.pop(node, None)
                self.gone.pop(node, None)
                if node in self.stopped and index > self.stopped[node][0]:
                    del self.stopped[node]

    def note(self, event: NodeEvent, period_ns: int, *, holds_work: bool) -> None:
        """Note an agent that starts, or stops on purpose; ``holds_work``: replicas hold devices of its node."""
        if event.kind == "agent_stopped":
            index = max(event.time_ns // period_ns, self.last_seen.get(event.node, (0, 0))[1])
            self.stopped[event.node] = index, holds_work
        elif event.kind == "agent_started" and event.node in self.stopped:
            del self.stopped[event.node]
            if event.node in self.last_seen:  # it has sent frames before; the first after the start may be late
                self.last_seen[event.node] = self.count + 1, self.last_seen[event.node][1]

    def silent_for(self, ticks: int) -> list[str]:
        """Nodes that have sent no frame for ``ticks`` closed ticks."""
        latest = self.count - ticks
        return [node for node, (count, _) in self.last_seen.items() if count <= latest]

    def drop(self, node: str) -> None:
        """Remember that a node is silent though the lane has dropped it, unless its agent left no work there."""
        if self.stopped.get(node, (0, True))[1] and self._is_here(node):
            self.gone[node] = None
            while len(self.gone) > MOST_GONE:
                del self.gone[next(iter(self.gone))]

    def remove(self, node: str) -> None:
        """Note that a node's inventory was removed: it shows no symptom until it sends again."""
        self.gone.pop(node, None)
        if node in self.last_seen:
            self.stopped[node] = self.last_seen[node][1], False

    def step(self, seen: CellTick) -> Iterator[Symptom]:
        """Symptoms of the nodes of a cell that are silent."""
        for event, _ in seen.events:
            self.note(event, seen.tick.period_ns, holds_work=seen.inventories[event.node].holds_work)
        yield from self.silent(seen.tick, seen.inventories.keys(), SILENCE_SHARE * seen.node_rate)

    def silent(self, tick: Tick, nodes: Collection[str], rate: float) -> Iterator[Symptom]:
        """Symptoms of silent nodes: the first when the limit is reached, then one every ``REPEAT_S``.

        ``rate`` is how often a node that will come back by itself may be reported, per second.
        """
        self.count += 1
        self._learn(tick, len(nodes), rate)
        longest = ceil(LONGEST_S * NS_PER_S / tick.period_ns)
        if self.gone:
            self.gone = {node: None for node in self.gone if self.count - self.last_seen[node][0] <= longest}
            nodes = {*nodes, *self.gone}
        if self.last_seen.keys() != nodes:  # hardly ever
            for table in (self.last_seen, self.reported, self.stopped, self.doubted):
                for node in [node for node in table if node not in nodes]:
                    del table[node]
            for node in sorted(node for node in nodes if node not in self.last_seen):
                self.last_seen[node] = self.count, tick.index
        limits = self.limit_s, REPEAT_S, RETURN_S
        limit, repeat, back = (ceil(s * NS_PER_S / tick.period_ns) for s in limits)
        latest = self.count - min(limit, back)
        for node in sorted([node for node, (count, _) in self.last_seen.items() if count <= latest]):
            count, index = self.last_seen[node]
            stop = self.stopped.get(node)
            least = limit if stop is None else back if stop[1] else longest + 1
            if not least <= self.count - count <= longest or not self._is_here(node):
                continue
            if self.count - self.reported.get(node, -repeat) < repeat:
                continue
            self.reported[node] = self.count
            since_ns = (index + 1) * tick.period_ns
            silent_s = max(0, tick.end_ns - since_ns) / NS_PER_S
            yield Symptom(
                detector=NO_TELEMETRY, cause="telemetry", strength="sign", severity="warning", since_ns=since_ns,
                time_ns=tick.end_ns, node=node, record=f"{NO_TELEMETRY}/{node}/{index}",
                text=f"nothing was heard of it for {silent_s:.0f} s, "
                + ("and its agent did not say that it stops" if stop is None else NOT_BACK),
            )  # fmt: skip

    @property
    def limit_s(self) -> float:
        """The silence after which a node is reported, s."""
        return UNIT_S * float(self.tail.limit[0])

    def _is_here(self, node: str) -> bool:
        """Whether this lane receives the frames of a node."""
        return not self.partitions or partition_of(node.encode(), self.partitions) == self.partition

    def _learn(self, tick: Tick, nodes: int, rate: float) -> None:
        """Add the silences that ended to the tail; of those that ended in one tick, only the longest."""
        period_s = tick.period_ns / NS_PER_S
        limit, trusted = self.limit_s / period_s, ceil(TRUST_S / period_s)
        longest = 0
        for node, missed in self.ended.items():
            if missed >= GONE * limit:
                continue
            if missed >= limit:
                if self.count - self.doubted.get(node, -trusted) < trusted:
                    continue
                self.doubted[node] = self.count
            longest = max(longest, missed)
        self.ended.clear()
        size, seen_s = longest * period_s / UNIT_S, np.array([nodes * period_s])
        stratum, sizes = (np.zeros(1, np.int64), np.array([size])) if longest else (_NOWHERE, _NO_SIZE)
        known = tail.step(self.tail, stratum, sizes, seen_s, period_s, rate, int(size > ENDING.least), ENDING)
        if known.limit is not self.tail.limit:
            known = known._replace(limit=np.clip(known.limit, SILENT_S / UNIT_S, MOST_S / UNIT_S))
        self.tail = known

    def state(self) -> Mapping[str, Any]:
        """State for a snapshot."""
        return {
            "count": self.count,
            "last_seen": self.last_seen,
            "reported": self.reported,
            "stopped": self.stopped,
            "gone": list(self.gone),
            "ended": self.ended,
            "doubted": self.doubted,
            "tail": arrays(self.tail),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.count = state["count"]
        self.last_seen = {node: (count, index) for node, (count, index) in state["last_seen"].items()}
        self.reported = dict(state["reported"])
        self.gone = dict.fromkeys(state["gone"])
        self.stopped = {node: (index, holds) for node, (index, holds) in state["stopped"].items()}
        self.ended, self.doubted = dict(state["ended"]), dict(state["doubted"])
        self.tail = like(_unseen(), state["tail"])


def _unseen() -> tail.State:
    """The tail before anything was seen: the least limit holds."""
    return tail.init(1, 1.0, ENDING)._replace(limit=np.full(1, SILENT_S / UNIT_S))
