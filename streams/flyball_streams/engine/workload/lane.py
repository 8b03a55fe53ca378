"""The workload lane of one partition: demand in, records of closed ticks out."""

from collections.abc import Sequence

import msgspec

from flyball_contracts.codec import Message, record_message, tick_closed_messages
from flyball_contracts.config import WorkerConfig
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Demand, Record, TickClosed, WorkloadSpec
from flyball_contracts.topics import PROPOSALS
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.gate import STAGGER, Gate
from flyball_streams.engine.lane import Incoming, check_period, take_records
from flyball_streams.engine.packing import pack, pack_struct, reading, unpack, unpack_struct
from flyball_streams.engine.stats import LaneStats, count
from flyball_streams.engine.workload.cell import WorkloadCell

STAGE = "workload lane"


class CellDemand(msgspec.Struct):
    """Open ticks of one cell and the demand in them."""

    gate: Gate
    open: dict[int, list[Demand]] = {}

    def drop(self, index: int, source: str) -> None:
        """Forget the demand that belongs to a mark which was refused."""
        kept = [d for d in self.open.pop(index, []) if d.source != source]
        if kept:
            self.open[index] = kept


class WorkloadLane:
    """Forecasts, sizes and times the workloads in one of ``partitions`` partitions of the demand topic."""

    def __init__(self, partition: int, config: WorkerConfig, directory: Directory, partitions: int) -> None:
        self.partition = partition
        self.partitions = partitions
        self.source = f"workload/{partition}"
        self.config = config
        self.directory = directory
        self.stats = LaneStats()
        self.ticks: dict[str, CellDemand] = {}
        self.cells: dict[str, WorkloadCell] = {}
        self._owned_at: dict[str, tuple[int, list[WorkloadSpec]]] = {}

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Take a micro-batch of demand and marks in; see :class:`~flyball_streams.engine.lane.Lane`."""
        out = take_records(batch, (Demand, TickClosed), self._take, self.stats, STAGE)
        for name, ticks in sorted(self.ticks.items()):
            for tick in ticks.gate.close():
                self.stats.ticks += 1
                for record in self._cell(name).close(tick, ticks.open.pop(tick.index, []), self._owned(name)):
                    self._emit(record, out)
        self.stats.without_spec = sum(len(cell.without_spec) for cell in self.cells.values())
        return out

    def snapshot(self) -> bytes:
        """The whole state."""
        return pack(
            {
                "stats": pack_struct(self.stats),
                "ticks": {name: pack_struct(ticks) for name, ticks in self.ticks.items()},
                "cells": {name: cell.state() for name, cell in self.cells.items()},
            }
        )

    def restore(self, state: bytes) -> None:
        """Take on the state of a snapshot; raises :class:`DecodeError` when it is not one."""
        loaded = unpack(state)
        with reading(self.source):
            self.stats = unpack_struct(loaded["stats"], LaneStats)
            self.ticks = {name: unpack_struct(raw, CellDemand) for name, raw in loaded["ticks"].items()}
            self.cells = {}
            for name, cell in loaded["cells"].items():
                self._cell(name).load(cell)

    def _take(self, record: Demand | TickClosed) -> None:
        ticks, config = self.ticks.get(record.cell), self.config
        if ticks is None:
            grace = config.lateness_ticks + STAGGER
            gate = Gate(record.tick.period_ns, config.lane_lateness_ticks, config.max_ahead_ticks, grace)
            ticks = self.ticks[record.cell] = CellDemand(gate)
        gate, index = ticks.gate, record.tick.index
        check_period(record.cell, record.source, record.tick, gate.period_ns)
        if isinstance(record, TickClosed):
            arrival = gate.arrive(record.source, index)
            count(self.stats, arrival)
            if arrival != "ok":
                ticks.drop(index, record.source)
        elif index <= gate.closed:
            gate.late += 1
            self.stats.late += 1
        else:
            ticks.open.setdefault(index, []).append(record)
            self.stats.used += 1

    def _cell(self, name: str) -> WorkloadCell:
        cell = self.cells.get(name)
        if cell is None:
            cell = self.cells[name] = WorkloadCell(name, self.source, self.config, self.directory)
        return cell

    def _owned(self, cell: str) -> list[WorkloadSpec]:
        known = self._owned_at.get(cell)
        if known is None or known[0] != self.directory.version:
            specs = self.directory.workloads(cell)
            mine = [s for s in specs if partition_of(s.workload.encode(), self.partitions) == self.partition]
            known = self._owned_at[cell] = self.directory.version, mine
        return known[1]

    def _emit(self, record: Record, out: list[Message]) -> None:
        self.stats.records += 1
        if isinstance(record, TickClosed):
            out += tick_closed_messages(record, PROPOSALS, None)
        else:
            out.append(record_message(record, f"/{self.source}"))
