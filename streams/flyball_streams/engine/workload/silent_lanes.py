"""Nodes of silent node lanes: no agent of a telemetry partition sends, or no worker reads the partition.

A silent node is detected by the ticks that other nodes of its telemetry partition close. If all nodes of a partition
are silent, no tick closes in its lane; but the cell's ticks close without that lane.
"""

from collections.abc import Collection, Iterator, Mapping
from math import ceil
from typing import Any

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Inventory, Symptom, Tick
from flyball_streams.engine.lane import OF_NODES
from flyball_streams.engine.node.detectors.absences import LONGEST_S, NOT_BACK, REPEAT_S, RETURN_S
from flyball_streams.engine.symptoms import NO_TELEMETRY

SILENT_S = 120.0
"""A killed worker is replaced sooner, and has then read its backlog."""


class SilentLanes:
    """Counts the ticks that each known node lane of a cell has missed.

    ``missed`` has the first missed tick and their number, by lane; ``reported`` is that number at the last report.
    A lane that missed ``LONGEST_S`` of ticks is forgotten.
    """

    def __init__(self, node_partitions: int) -> None:
        self.node_partitions = node_partitions
        self.known: set[str] = set()
        self.missed: dict[str, tuple[int, int]] = {}
        self.reported: dict[str, int] = {}

    def step(self, tick: Tick, sources: Collection[str], nodes: Collection[Inventory]) -> Iterator[Symptom]:
        """Nodes of silent lanes, repeated every ``REPEAT_S``; ``sources`` are the lanes that reported the tick."""
        self.known.update(name for name in sources if name.startswith(OF_NODES))
        before, self.missed = self.missed, {}
        limits = SILENT_S, REPEAT_S, LONGEST_S, RETURN_S
        limit, again, longest, back = (ceil(s * NS_PER_S / tick.period_ns) for s in limits)
        for name in self.known.difference(sources):  # ``tick.missing`` is truncated, and omits lanes silent for long
            first, count = before.get(name, (tick.index, 0))
            if count < longest:
                self.missed[name] = first, count + 1
            else:
                self.known.discard(name)
        self.reported = {name: count for name, count in self.reported.items() if name in self.missed}
        for name, (first, count) in sorted(self.missed.items()):
            if count < limit or count - self.reported.get(name, -again) < again:
                continue
            self.reported[name] = count
            since_ns, partition = first * tick.period_ns, int(name.removeprefix(OF_NODES))
            silent_s = max(0, tick.end_ns - since_ns) / NS_PER_S
            for node in nodes:
                if not node.devices or partition_of(node.node.encode(), self.node_partitions) != partition:
                    continue
                if node.agent == "running" or (node.agent == "stopped" and node.holds_work and count >= back):
                    yield Symptom(
                        detector=NO_TELEMETRY, cause="telemetry", strength="sign", severity="warning",
                        since_ns=since_ns, time_ns=tick.end_ns, node=node.node,
                        record=f"{NO_TELEMETRY}/{node.node}/{first}",
                        text=f"nothing was heard of it for {silent_s:.0f} s, "
                        + ("nor of any other node of its partition" if node.agent == "running" else NOT_BACK),
                    )  # fmt: skip

    def state(self) -> Mapping[str, Any]:
        """State for a snapshot."""
        return {"known": sorted(self.known), "missed": self.missed, "reported": self.reported}

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.known, self.reported = set(state["known"]), dict(state["reported"])
        self.missed = {name: (first, count) for name, (first, count) in state["missed"].items()}
