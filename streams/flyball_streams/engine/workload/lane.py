"""The workload lane: reads the demand of one partition, and publishes the records of closed ticks."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

import msgspec

from flyball_contracts.codec import Message, record_message
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Arrivals, Demand, DemandTick, Inventory, Signal, TableOffsets, Tick, WorkloadSpec
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.gate import STAGGER, Arrival, Gate
from flyball_streams.engine.lane import OF_NODES, Incoming, check_period, take_records
from flyball_streams.engine.offsets import NO_OFFSETS, as_read, latest
from flyball_streams.engine.packing import pack, pack_struct, reading, unpack, unpack_struct
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.stats import LaneStats, count
from flyball_streams.engine.view import View
from flyball_streams.engine.workload.arrivals import NOTHING, BySource
from flyball_streams.engine.workload.cell import WorkloadCell
from flyball_streams.engine.workload.forecast.history import History
from flyball_streams.engine.workload.merge import merge

STAGE = "workload lane"
GONE_S = 600.0
"""A node lane that was silent for this long is forgotten, like its nodes: until then no sum of its cell is used."""


class CellDemand(msgspec.Struct):
    """Open ticks of one cell, with the demand by source and workload, and arrivals at gateways by source.

    ``offsets`` are the table offsets of each tick.
    """

    gate: Gate
    open: dict[int, dict[str, dict[str, Demand]]] = {}
    arrivals: dict[int, dict[str, tuple[Arrivals, ...]]] = {}
    offsets: dict[int, TableOffsets] = {}


class ClosedTick(NamedTuple):
    """The contents of a tick when it closed, without later messages of the same batch.

    ``offsets`` are its table offsets; ``None`` if no source gave them.
    """

    cell: str
    tick: Tick
    demands: dict[str, dict[str, Demand]]
    arrivals: BySource
    offsets: TableOffsets | None


class WorkloadLane:
    """Forecasts, sizes and schedules the workloads in one of ``partitions`` partitions of the demand topic.

    ``node_partitions`` is the number of partitions of the telemetry topic (0: unknown). With the inventories it
    determines which node lanes a cell has, so that no tick closes before the first message of a slow lane.
    """

    def __init__(
        self,
        partition: int,
        config: Parameters,
        directory: Directory,
        partitions: int,
        histories: Mapping[str, History] | None = None,
        node_partitions: int = 0,
    ) -> None:
        self.partition = partition
        self.node_partitions = node_partitions
        self.partitions = partitions
        self.source = f"workload/{partition}"
        self.config = config
        self.directory = directory
        self.histories = histories or {}
        self.stats = LaneStats()
        self.ticks: dict[str, CellDemand] = {}
        self.cells: dict[str, WorkloadCell] = {}
        self.views: dict[str, View] = {}
        self._closed: list[ClosedTick] = []
        self._owned_at: dict[str, tuple[int, list[WorkloadSpec]]] = {}
        self.base: TableOffsets = directory.offsets
        self.age_ns = round(config.table_age_s * NS_PER_S)

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Process a micro-batch of demand; see :class:`~flyball_streams.engine.lane.Lane`."""
        out = take_records(batch, (DemandTick,), self._ingest, self.stats, STAGE)
        closed, self._closed = self._closed, []
        for cell, tick, demands, arrived, offsets in sorted(closed, key=lambda w: w.cell):
            self.stats.ticks += 1
            owned = self._cell(cell)
            view = self.views[cell]
            view.advance(tick, offsets)
            reported = demands.keys()
            for record in owned.close(tick, merge(demands), self._owned(cell), arrived, view.offsets, reported):
                self.stats.records += 1
                out.append(record_message(record, f"/{self.source}"))
        self.stats.without_spec = sum(len(cell.without_spec) for cell in self.cells.values())
        return out

    def snapshot(self) -> bytes:
        """The whole state."""
        return pack(
            {
                "stats": pack_struct(self.stats),
                "ticks": {name: pack_struct(ticks) for name, ticks in self.ticks.items()},
                "cells": {name: cell.state() for name, cell in self.cells.items()},
                "views": {name: view.state() for name, view in self.views.items()},
                "base": self.base,
            }
        )

    def restore(self, state: bytes) -> None:
        """Replace the state by that of a snapshot; raises :class:`DecodeError` if it is not one."""
        loaded = unpack(state)
        with reading(self.source):
            self.stats = unpack_struct(loaded["stats"], LaneStats)
            self.base = as_read(loaded["base"])
            self.ticks = {name: unpack_struct(raw, CellDemand) for name, raw in loaded["ticks"].items()}
            self.cells, self.views, self._owned_at = {}, {}, {}
            for name, cell in loaded["cells"].items():
                self._cell(name).load(cell)
                self.views[name].load(loaded["views"][name])

    def _ingest(self, record: DemandTick, log_ms: int) -> None:
        ticks = self.ticks.get(record.cell)
        if ticks is None:
            ticks = self.ticks[record.cell] = CellDemand(self._gate(record))
        gate, index = ticks.gate, record.tick.index
        check_period(record.cell, record.source, record.tick, gate.period_ns)
        is_last = record.part >= record.parts - 1
        in_time: Arrival = "ok" if index > gate.closed else "late"
        arrival = gate.arrive(record.source, index, log_ms) if is_last else in_time
        count(self.stats, arrival)
        if arrival == "ok":
            self._add(ticks, record)
        elif is_last:
            ticks.open.get(index, {}).pop(record.source, None)
            ticks.arrivals.get(index, {}).pop(record.source, None)
        for tick in gate.close():
            arrivals = ticks.arrivals.pop(tick.index, NOTHING) if ticks.arrivals else NOTHING
            demands, offsets = ticks.open.pop(tick.index, {}), ticks.offsets.pop(tick.index, None)
            self._closed.append(ClosedTick(record.cell, tick, demands, arrivals, offsets))

    def _gate(self, record: DemandTick) -> Gate:
        config, nodes = self.config, self._nodes(record) if self.node_partitions else []
        grace = config.lateness_ticks + STAGGER
        period_ns = record.tick.period_ns
        lateness = config.lane_lateness_ticks(period_ns)
        gone = max(lateness, ceil(GONE_S * NS_PER_S / period_ns))
        gate = Gate(period_ns, lateness, config.max_ahead_ticks, grace, forget=gone)
        # Nodes without work add no demand, so no tick waits for them.
        holders = (n.node.encode() for n in nodes if n.allocations)
        gate.expect(f"{OF_NODES}{p}" for p in {partition_of(node, self.node_partitions) for node in holders})
        return gate

    def _nodes(self, record: DemandTick) -> list[Inventory]:
        """Nodes of a cell at its first tick."""
        view = View(self.directory, record.cell, (Inventory,), base=self.base)
        view.advance(record.tick, record.table_offsets or None)
        return view.nodes(record.cell)

    def _add(self, ticks: CellDemand, record: DemandTick) -> None:
        """Add demand by source and workload: a restarted node lane publishes some of it again."""
        have = ticks.open.setdefault(record.tick.index, {}).setdefault(record.source, {})
        have |= {demand.workload: demand for demand in record.demands}
        if record.table_offsets:
            index = record.tick.index
            ticks.offsets[index] = latest(ticks.offsets.get(index, NO_OFFSETS), record.table_offsets)
        if record.arrivals:
            ticks.arrivals.setdefault(record.tick.index, {})[record.source] = record.arrivals

    def _cell(self, name: str) -> WorkloadCell:
        cell = self.cells.get(name)
        if cell is None:
            history = self.histories.get(name)
            owned = history.only(self._is_owned) if history is not None else None
            view = self.views[name] = View(
                self.directory, name, (Inventory, WorkloadSpec, Signal), base=self.base, age_ns=self.age_ns
            )
            lanes = self.node_partitions if self.partition == 0 else 0  # only one lane reports silent node lanes
            cell = self.cells[name] = WorkloadCell(name, self.source, self.config, view, owned, lanes)
        return cell

    def _is_owned(self, workload: str) -> bool:
        return partition_of(workload.encode(), self.partitions) == self.partition

    def _owned(self, cell: str) -> list[WorkloadSpec]:
        known, view = self._owned_at.get(cell), self.views[cell]
        if known is None or known[0] != view.version:
            owned = [s for s in view.workloads(cell) if self._is_owned(s.workload)]
            known = self._owned_at[cell] = view.version, owned
        return known[1]
