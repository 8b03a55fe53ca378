"""Nodes that say nothing any more, though they did not say that they would stop."""

from collections.abc import Collection, Iterator, Mapping
from math import ceil
from typing import Any

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent, Symptom, Tick
from flyball_streams.engine.symptoms import NO_TELEMETRY

SILENT_S = 60.0
"""An agent that is killed is back sooner, and a broker that restarts, too."""
AGAIN_S = 60.0


class Absences:
    """Counts the ticks of a cell that each node missed; ``said`` is when each was told of last, by that count.

    Ticks are counted and not time: while nobody is heard no tick closes, and nobody is missed. ``stopped`` are nodes
    whose agent said that it stops, with the tick: that is no symptom, until it speaks again.
    """

    def __init__(self) -> None:
        self.count = 0
        self.heard: dict[str, tuple[int, int]] = {}
        self.said: dict[str, int] = {}
        self.stopped: dict[str, int] = {}

    def hear(self, node: str, index: int) -> None:
        """Take note of a frame, in time or late."""
        self.heard[node] = self.count, max(index, self.heard.get(node, (0, 0))[1])
        self.said.pop(node, None)
        if index > self.stopped.get(node, index):
            del self.stopped[node]

    def note(self, event: NodeEvent, period_ns: int) -> None:
        """Take note of an agent that stops on purpose."""
        if event.kind == "agent_stopped":
            self.stopped[event.node] = max(event.time_ns // period_ns, self.heard.get(event.node, (0, 0))[1])
        elif event.kind == "agent_started":
            self.stopped.pop(event.node, None)

    def step(self, tick: Tick, nodes: Collection[str]) -> Iterator[Symptom]:
        """Nodes that are missed: when they are, and again every ``AGAIN_S``."""
        self.count += 1
        for known in (self.heard, self.said, self.stopped):
            for node in [node for node in known if node not in nodes]:
                del known[node]
        limit, again = (ceil(s * NS_PER_S / tick.period_ns) for s in (SILENT_S, AGAIN_S))
        for node in sorted(nodes):
            count, index = self.heard.setdefault(node, (self.count, tick.index))
            if self.count - count < limit or node in self.stopped:
                continue
            if self.count - self.said.get(node, -again) < again:
                continue
            self.said[node] = self.count
            since_ns = (index + 1) * tick.period_ns
            silent_s = max(0, tick.end_ns - since_ns) / NS_PER_S
            yield Symptom(
                detector=NO_TELEMETRY, cause="telemetry", strength="sign", severity="warning", since_ns=since_ns,
                time_ns=tick.end_ns, node=node, record=f"{NO_TELEMETRY}/{node}/{index}",
                text=f"nothing was heard of it for {silent_s:.0f} s, and its agent did not say that it stops",
            )  # fmt: skip

    def state(self) -> Mapping[str, Any]:
        """State for a snapshot."""
        return {"count": self.count, "heard": self.heard, "said": self.said, "stopped": self.stopped}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take on the state of a snapshot."""
        self.count = state["count"]
        self.heard = {node: (count, index) for node, (count, index) in state["heard"].items()}
        self.said, self.stopped = dict(state["said"]), dict(state["stopped"])
