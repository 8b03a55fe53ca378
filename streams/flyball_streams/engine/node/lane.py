"""The node lane: reads telemetry and events of one partition, and publishes the records of closed ticks."""

from collections.abc import Sequence

from flyball_contracts.codec import Message, decode_record, record_message
from flyball_contracts.errors import DecodeError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Inventory, NodeEvent, TableOffsets, WorkloadSpec
from flyball_contracts.topics import TELEMETRY
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.lane import OF_NODES, Incoming, refuse
from flyball_streams.engine.node.cell import NodeCell
from flyball_streams.engine.node.intake import STAGE, Intake
from flyball_streams.engine.offsets import as_read
from flyball_streams.engine.packing import pack, pack_struct, reading, unpack, unpack_struct
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.stats import LaneStats
from flyball_streams.engine.view import View


class NodeLane:
    """Profiles and monitors the devices of the nodes in one partition of the telemetry topic.

    ``demand_partitions`` is the number of partitions of the demand topic, each of which gets a message for every tick.
    ``capacity`` is the number of devices to expect, so that the models compile once. ``node_partitions`` is the number
    of partitions of the telemetry topic (0: unknown): a node whose frames go to another partition is not reported.

    It publishes with each tick how far the tables are read. Its own results depend only on specifications, up to the
    offsets of its last snapshot (``offsets``), which is all that a restored lane knows.
    """

    def __init__(
        self,
        partition: int,
        config: Parameters,
        directory: Directory,
        demand_partitions: int,
        capacity: int = 0,
        node_partitions: int = 0,
    ) -> None:
        self.partition = partition
        self.source = f"{OF_NODES}{partition}"
        self.config = config
        self.directory = directory
        self.demand_partitions = demand_partitions
        self.capacity = capacity
        self.node_partitions = node_partitions
        self.stats = LaneStats()
        self.intake = Intake(config, directory, self.stats)
        self.cells: dict[str, NodeCell] = {}
        self.views: dict[str, View] = {}
        self.base: TableOffsets = directory.offsets
        self.age_ns = round(config.table_age_s * NS_PER_S)
        self.offsets = self.base
        self._ids: dict[str, tuple[Inventory, frozenset[str]]] = {}

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Process a micro-batch of frames and events; see :class:`~flyball_streams.engine.lane.Lane`."""
        out: list[Message] = []
        telemetry = TELEMETRY.name
        frames = [message for message in batch if message.topic == telemetry]
        if len(frames) < len(batch):
            for message in batch:
                if message.topic != telemetry:
                    self._event(message, out)
        out += self.intake.take(frames)
        for name, ticks in sorted(self.intake.cells.items()):
            if ticks.late:
                self._cell(name).note_late(sorted(ticks.late))
                ticks.late.clear()
            for tick in ticks.gate.close():
                self.stats.ticks += 1
                cell = self._cell(name)
                self.views[name].advance(tick, self.offsets)
                cell.note_removed(self.views[name].take_removed())
                for record in cell.close(tick, ticks.open.pop(tick.index, []), self.directory.offsets):
                    self.stats.records += 1
                    out.append(record_message(record, f"/{self.source}"))
        self.stats.superseded = sum(cell.superseded for cell in self.cells.values())
        return out

    def reached(self, cell: str) -> int | None:
        """End of the newest closed tick of a cell, in ns; ``None`` if this lane does not know the cell."""
        ticks = self.intake.cells.get(cell)
        return None if ticks is None else (ticks.gate.closed + 1) * ticks.gate.period_ns

    def snapshot(self) -> bytes:
        """Return the whole state; from now on, specifications count up to the current offsets."""
        self.offsets = self.directory.offsets
        cells = {name: cell.state() for name, cell in self.cells.items()}
        views = {name: view.state() for name, view in self.views.items()}
        state = {"stats": pack_struct(self.stats), "intake": self.intake.state(), "cells": cells, "views": views}
        return pack({**state, "base": self.base, "offsets": self.offsets})

    def restore(self, state: bytes) -> None:
        """Replace the state by that of a snapshot; raises :class:`DecodeError` if it is not one."""
        loaded = unpack(state)
        with reading(self.source):
            self.stats = unpack_struct(loaded["stats"], LaneStats)
            self.intake.stats = self.stats
            self.intake.load(loaded["intake"])
            self.base, self.offsets = as_read(loaded["base"]), as_read(loaded["offsets"])
            self.cells, self.views = {}, {}
            for name, cell in loaded["cells"].items():
                self._cell(name).load(cell)
                self.views[name].load(loaded["views"][name])
                for inventory in self.cells[name].inventories.values():
                    self.directory.restore_inventory(
                        inventory
                    )  # frames refer to it, and compaction may have deleted it

    def _cell(self, name: str) -> NodeCell:
        cell = self.cells.get(name)
        if cell is None:
            view = self.views[name] = View(self.directory, name, (WorkloadSpec,), base=self.base, age_ns=self.age_ns)
            cell = self.cells[name] = NodeCell(
                name, self.partition, self.config, view, self.demand_partitions, self.capacity, self.node_partitions
            )
        return cell

    def _event(self, message: Incoming, out: list[Message]) -> None:
        try:
            record = decode_record(message.topic, message.value, message.headers)
        except DecodeError as error:
            self.stats.undecodable += 1
            out.append(refuse(message, STAGE, error))
            return
        inventory = self.directory.inventories.get(record.node) if isinstance(record, NodeEvent) else None
        if isinstance(record, NodeEvent) and inventory is not None and self._concerns(record, inventory):
            self.stats.used += 1
            self._cell(inventory.cell).note(record)
        else:
            self.stats.ignored += 1

    def _concerns(self, event: NodeEvent, inventory: Inventory) -> bool:
        if not event.device:
            return True
        known = self._ids.get(event.node)
        if known is None or known[0] is not inventory:
            known = self._ids[event.node] = inventory, frozenset(d.id for d in inventory.devices)
        return event.device in known[1]
