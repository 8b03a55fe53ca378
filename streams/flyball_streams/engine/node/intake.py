"""Turns messages into usable frames: decoded, not duplicate, with a known inventory, and on time."""

from collections.abc import Sequence as Batch
from typing import Any, NamedTuple, TypeAlias

import msgspec

from flyball_contracts.codec import Message
from flyball_contracts.errors import DecodeError, RecordError
from flyball_contracts.frame import Frame, decode_frame, encode_frame
from flyball_contracts.ids import MAX_TIME_NS
from flyball_contracts.metrics import GATEWAY, GPU, HOST, SERVING, USAGE, WORKLOAD, layout_of
from flyball_contracts.records import Inventory
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.gate import Gate
from flyball_streams.engine.lane import Incoming, refuse
from flyball_streams.engine.node.dedup import Sequence, Verdict
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.stats import LaneStats, count

STAGE = "node lane"
USED = frozenset({GPU.schema, HOST.schema, WORKLOAD.schema, USAGE.schema, GATEWAY.schema, SERVING.schema})
"""Layouts that decisions use. Other frames go to sinks only; the lane uses nothing but their sequence numbers."""
MAX_PENDING = 4096
"""Most frames that wait for their inventory; more, or a wait beyond the lateness, is a fault of the sender."""


Entry: TypeAlias = tuple[Inventory, Frame]
"""One usable frame of a tick, and its inventory; a plain tuple for speed, as there is one for each message."""


class PendingFrame(NamedTuple):
    """A frame that waits for its inventory, with its message."""

    message: Incoming
    frame: Frame


class Route(NamedTuple):
    """Cached destination of frames of one layout from one node, while the directory, boot and epoch stay the same.

    ``source`` is their source name at the gate, ``rows`` their number of rows.
    """

    boot_id: str
    epoch: int
    inventory: Inventory
    rows: int
    source: str


class CellTicks(msgspec.Struct):
    """The open ticks of one cell with their frames, and nodes whose frames came too late since the last step."""

    gate: Gate
    open: dict[int, list[Entry]] = {}
    late: set[str] = set()


class Intake:
    """Sorts the frames of one partition into the ticks of their cells."""

    def __init__(self, config: Parameters, directory: Directory, stats: LaneStats) -> None:
        self.config = config
        self.directory = directory
        self.stats = stats
        self.nodes: dict[str, Sequence] = {}
        self.cells: dict[str, CellTicks] = {}
        self.pending: list[PendingFrame] = []
        self._directory_version = -1
        self._routes: dict[int, dict[str, Route]] = {schema: {} for schema in USED}

    def take(self, batch: Batch[Incoming]) -> list[Message]:
        """Process frames; return dead letters for the unusable ones."""
        dead: list[Message] = []
        if self.directory.version != self._directory_version:
            self._directory_version = self.directory.version
            self._routes = {schema: {} for schema in USED}
            waiting, self.pending = self.pending, []
            for pending in waiting:
                self._place(pending.message, pending.frame, dead)
        waited, nodes = len(self.pending), self.nodes
        for message in batch:
            try:
                frame = decode_frame(message.value or b"")
            except DecodeError as error:
                self.stats.undecodable += 1
                dead.append(refuse(message, STAGE, error))
                continue
            sequence = nodes.get(frame.node)
            if sequence is None:
                nodes[frame.node] = Sequence.of(frame)
            else:
                verdict, missing = sequence.accept(frame.boot_id, frame.epoch, frame.seq, frame.time_ns)
                if missing or verdict != "new":
                    self._note(verdict, missing)
                if verdict != "new":
                    continue
            if frame.schema in USED:
                self._place(message, frame, dead)
        self._expire(waited, dead)
        self.stats.waiting = len(self.pending)
        return dead

    def state(self) -> dict[str, Any]:
        """State for a snapshot: sequences, gates, open ticks and pending frames."""
        inventories: dict[int, tuple[int, bytes]] = {}

        def reference(inventory: Inventory) -> int:
            known = inventories.setdefault(id(inventory), (len(inventories), pack_struct(inventory)))
            return known[0]

        cells = {
            name: [
                pack_struct(cell.gate),
                {
                    i: [[reference(inventory), encode_frame(frame)] for inventory, frame in open]
                    for i, open in cell.open.items()
                },
            ]
            for name, cell in self.cells.items()
        }
        return {
            "nodes": {name: pack_struct(sequence) for name, sequence in self.nodes.items()},
            "cells": cells,
            "inventories": [raw for _, raw in inventories.values()],
            "pending": [[*p.message[:5], list(p.message.headers)] for p in self.pending],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        inventories = [unpack_struct(raw, Inventory) for raw in state["inventories"]]
        self.nodes = {name: unpack_struct(raw, Sequence) for name, raw in state["nodes"].items()}
        self.cells = {}
        for name, (gate, ticks) in state["cells"].items():
            cell = self.cells[name] = CellTicks(unpack_struct(gate, Gate))
            for index, entries in ticks.items():
                cell.open[index] = [(inventories[i], decode_frame(raw)) for i, raw in entries]
        self.pending = []
        for topic, partition, offset, key, value, headers in state["pending"]:
            message = Incoming(topic, partition, offset, key, value, [(n, v) for n, v in headers])
            self.pending.append(PendingFrame(message, decode_frame(value)))
        self._directory_version = -1

    def _note(self, verdict: Verdict, missing: int) -> None:
        self.stats.gaps += missing
        if verdict == "duplicate":
            self.stats.duplicates += 1
        elif verdict == "stale":
            self.stats.late += 1

    def _place(self, message: Incoming, frame: Frame, dead: list[Message]) -> None:
        schema = frame.schema
        route = self._routes[schema].get(frame.node)
        if route is None or route.boot_id != frame.boot_id or route.epoch != frame.inventory_epoch:
            route = self._route(frame)
            if route is None:
                self.pending.append(PendingFrame(message, frame))
                return
        _, _, inventory, rows, source = route
        if frame.rows != rows:
            self.stats.unfit += 1
            dead.append(refuse(message, STAGE, RecordError(_unfit(frame, layout_of(schema).rows, rows))))
            return
        cell = self.cells.get(inventory.cell)
        period_ns = frame.period_ns if cell is None else cell.gate.period_ns
        index = frame.time_ns // period_ns
        if (index + 1) * period_ns > MAX_TIME_NS:
            self.stats.unfit += 1
            dead.append(refuse(message, STAGE, RecordError(f"frame of node {frame.node!r}: its tick never ends")))
            return
        if cell is None:
            late = self.config.lateness_ticks
            cell = CellTicks(Gate(period_ns, late, self.config.max_ahead_ticks, grace=late))
            self.cells[inventory.cell] = cell
        entry = inventory, frame
        if schema == USAGE.schema:  # sent less often, so no tick waits for it
            if index in cell.open:
                cell.open[index].append(entry)
                self.stats.rows += rows
            else:
                self.stats.ignored += 1
            return
        arrival = cell.gate.arrive(source, index)
        count(self.stats, arrival)
        if arrival == "ok":
            self.stats.rows += rows
            entries = cell.open.get(index)
            if entries is None:
                cell.open[index] = [entry]
            else:
                entries.append(entry)
        elif arrival == "late":
            cell.late.add(frame.node)
        elif arrival == "early":
            ahead_s = (index - cell.gate.closed) * cell.gate.period_ns / 1e9
            error = RecordError(
                f"frame of node {frame.node!r} is {ahead_s:.0f} s ahead of the other nodes of cell "
                f"{inventory.cell!r}; check the node's clock (time synchronisation)"
            )
            dead.append(refuse(message, STAGE, error))

    def _route(self, frame: Frame) -> Route | None:
        inventory = self.directory.inventory(frame.node, frame.boot_id, frame.inventory_epoch)
        if inventory is None:
            return None
        schema, rows = frame.schema, 1
        if schema == GPU.schema:
            rows = len(inventory.devices)
        elif schema in (WORKLOAD.schema, USAGE.schema, SERVING.schema):
            rows = len(inventory.allocations)
        elif schema == GATEWAY.schema:
            rows = len(inventory.gateways)
        source = f"{frame.node}|{schema}"
        route = Route(frame.boot_id, frame.inventory_epoch, inventory, rows, source)
        self._routes[schema][frame.node] = route
        return route

    def _expire(self, waited: int, dead: list[Message]) -> None:
        """Refuse frames whose inventory did not come though newer frames of their node did, and the oldest of too many.

        Only the first ``waited`` can be overdue: a batch after a pause spans much event time, and the inventory of its
        frames may still be under way.
        """
        if not self.pending:
            return
        kept: list[PendingFrame] = []
        overflow = len(self.pending) - MAX_PENDING
        for i, pending in enumerate(self.pending):
            frame = pending.frame
            allowed_ns = self.config.lateness_ticks * frame.period_ns
            overdue = i < waited and self.nodes[frame.node].time_ns - frame.time_ns > allowed_ns
            if not overdue and i >= overflow:
                kept.append(pending)
                continue
            self.stats.unknown_inventory += 1
            error = RecordError(
                f"frame of node {frame.node!r} names inventory epoch {frame.inventory_epoch} of boot "
                f"{frame.boot_id!r}, which never came; the agent must publish its inventory first"
            )
            dead.append(refuse(pending.message, STAGE, error))
        self.pending = kept


def _unfit(frame: Frame, kind: str, rows: int) -> str:
    return (
        f"frame of node {frame.node!r} has {frame.rows} {kind} rows, but inventory epoch "
        f"{frame.inventory_epoch} lists {rows}; the agent must raise the epoch when its rows change"
    )
