"""Detects nodes that stopped sending without an announced stop of their agent."""

from collections.abc import Collection, Iterator, Mapping
from math import ceil
from typing import Any

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent, Symptom, Tick
from flyball_streams.engine.symptoms import NO_TELEMETRY

SILENT_S = 60.0
"""Longer than the restart of an agent or a broker."""
REPEAT_S = 60.0


class Absences:
    """Counts the closed ticks since the last frame of each node of a cell.

    ``count`` counts the ticks of the cell; ``last_seen`` has the count and tick index of each node's last frame, and
    ``reported`` the count of its last symptom. Ticks are counted instead of time: while no node sends, no tick closes
    and no node is missed. ``stopped`` are nodes whose agent announced its stop, with the tick: they show no symptom
    until they send again.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last_seen: dict[str, tuple[int, int]] = {}
        self.reported: dict[str, int] = {}
        self.stopped: dict[str, int] = {}

    def observe(self, node: str, index: int) -> None:
        """Note a frame, in time or late."""
        self.last_seen[node] = self.count + 1, max(index, self.last_seen.get(node, (0, 0))[1])
        self.reported.pop(node, None)
        if index > self.stopped.get(node, index):
            del self.stopped[node]

    def note(self, event: NodeEvent, period_ns: int) -> None:
        """Note an agent that starts, or stops on purpose."""
        if event.kind == "agent_stopped":
            self.stopped[event.node] = max(event.time_ns // period_ns, self.last_seen.get(event.node, (0, 0))[1])
        elif event.kind == "agent_started":
            self.stopped.pop(event.node, None)

    def step(self, tick: Tick, nodes: Collection[str]) -> Iterator[Symptom]:
        """Symptoms of missed nodes: the first after ``SILENT_S``, then one every ``REPEAT_S``."""
        self.count += 1
        for table in (self.last_seen, self.reported, self.stopped):
            for node in [node for node in table if node not in nodes]:
                del table[node]
        limit, repeat = (ceil(s * NS_PER_S / tick.period_ns) for s in (SILENT_S, REPEAT_S))
        for node in sorted(nodes):
            count, index = self.last_seen.setdefault(node, (self.count, tick.index))
            if self.count - count < limit or node in self.stopped:
                continue
            if self.count - self.reported.get(node, -repeat) < repeat:
                continue
            self.reported[node] = self.count
            since_ns = (index + 1) * tick.period_ns
            silent_s = max(0, tick.end_ns - since_ns) / NS_PER_S
            yield Symptom(
                detector=NO_TELEMETRY, cause="telemetry", strength="sign", severity="warning", since_ns=since_ns,
                time_ns=tick.end_ns, node=node, record=f"{NO_TELEMETRY}/{node}/{index}",
                text=f"nothing was heard of it for {silent_s:.0f} s, and its agent did not say that it stops",
            )  # fmt: skip

    def state(self) -> Mapping[str, Any]:
        """State for a snapshot."""
        return {"count": self.count, "last_seen": self.last_seen, "reported": self.reported, "stopped": self.stopped}

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.count = state["count"]
        self.last_seen = {node: (count, index) for node, (count, index) in state["last_seen"].items()}
        self.reported, self.stopped = dict(state["reported"]), dict(state["stopped"])
