"""The workload lane of one partition: demand in, records of closed ticks out."""

from collections.abc import Sequence

import msgspec

from flyball_contracts.codec import Message, decode_record, record_message, tick_closed_messages
from flyball_contracts.config import WorkerConfig
from flyball_contracts.errors import DecodeError
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Demand, Record, TickClosed, WorkloadSpec
from flyball_contracts.topics import PROPOSALS
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.gate import STAGGER, TRUSTED, Gate
from flyball_streams.engine.lane import Incoming, refuse
from flyball_streams.engine.packing import pack, pack_struct, unpack, unpack_struct
from flyball_streams.engine.stats import LaneStats
from flyball_streams.engine.workload.cell import WorkloadCell

STAGE = "workload lane"


class CellDemand(msgspec.Struct):
    """Open ticks of one cell and the demand in them."""

    gate: Gate
    open: dict[int, list[Demand]] = {}


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

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Take a micro-batch of demand and marks in; see :class:`~flyball_streams.engine.lane.Lane`."""
        out: list[Message] = []
        for message in batch:
            try:
                record = decode_record(message.topic, message.value, message.headers)
            except DecodeError as error:
                self.stats.undecodable += 1
                out.append(refuse(message, STAGE, error))
                continue
            if isinstance(record, Demand | TickClosed):
                self._take(record)
            else:
                self.stats.ignored += 1
        for name, ticks in sorted(self.ticks.items()):
            for tick in ticks.gate.close():
                self.stats.ticks += 1
                for record in self._cell(name).close(tick, ticks.open.pop(tick.index, []), self._owned(name)):
                    self._emit(record, out)
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
        """Take on the state of a snapshot."""
        loaded = unpack(state)
        self.stats = unpack_struct(loaded["stats"], LaneStats)
        self.ticks = {name: unpack_struct(raw, CellDemand) for name, raw in loaded["ticks"].items()}
        self.cells = {}
        for name, cell in loaded["cells"].items():
            self._cell(name).load(cell)

    def _take(self, record: Demand | TickClosed) -> None:
        ticks = self.ticks.get(record.cell)
        if ticks is None:
            late = self.config.lateness_ticks
            ticks = CellDemand(Gate(record.tick.period_ns, self.config.lane_lateness_ticks, TRUSTED, grace=late + STAGGER))
            self.ticks[record.cell] = ticks
        index = record.tick.index
        if isinstance(record, TickClosed):
            ticks.gate.arrive(record.source, index)
            self.stats.used += 1
        elif index <= ticks.gate.closed:
            ticks.gate.late += 1
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
        specs = self.directory.workloads(cell)
        return [s for s in specs if partition_of(s.workload.encode(), self.partitions) == self.partition]

    def _emit(self, record: Record, out: list[Message]) -> None:
        self.stats.records += 1
        if isinstance(record, TickClosed):
            out += tick_closed_messages(record, PROPOSALS, None)
        else:
            out.append(record_message(record, f"/{self.source}"))
