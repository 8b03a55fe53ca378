"""The workload lane of one partition: demand in, records of closed ticks out."""

from collections.abc import Mapping, Sequence

import msgspec

from flyball_contracts.codec import Message, record_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Arrivals, Demand, DemandTick, WorkloadSpec
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.gate import STAGGER, Arrival, Gate
from flyball_streams.engine.lane import Incoming, check_period, take_records
from flyball_streams.engine.packing import pack, pack_struct, reading, unpack, unpack_struct
from flyball_streams.engine.stats import LaneStats, count
from flyball_streams.engine.workload.arrivals import NOTHING
from flyball_streams.engine.workload.cell import WorkloadCell
from flyball_streams.engine.workload.history import History
from flyball_streams.engine.workload.merge import merge

STAGE = "workload lane"


class CellDemand(msgspec.Struct):
    """Open ticks of one cell, the demand in them by source and workload, and what gateways saw by source."""

    gate: Gate
    open: dict[int, dict[str, dict[str, Demand]]] = {}
    arrivals: dict[int, dict[str, tuple[Arrivals, ...]]] = {}


class WorkloadLane:
    """Forecasts, sizes and times the workloads in one of ``partitions`` partitions of the demand topic."""

    def __init__(
        self,
        partition: int,
        config: WorkerConfig,
        directory: Directory,
        partitions: int,
        histories: Mapping[str, History] | None = None,
    ) -> None:
        self.partition = partition
        self.partitions = partitions
        self.source = f"workload/{partition}"
        self.config = config
        self.directory = directory
        self.histories = histories or {}
        self.stats = LaneStats()
        self.ticks: dict[str, CellDemand] = {}
        self.cells: dict[str, WorkloadCell] = {}
        self._owned_at: dict[str, tuple[int, list[WorkloadSpec]]] = {}

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Take a micro-batch of demand in; see :class:`~flyball_streams.engine.lane.Lane`."""
        out = take_records(batch, (DemandTick,), self._take, self.stats, STAGE)
        for name, ticks in sorted(self.ticks.items()):
            for tick in ticks.gate.close():
                self.stats.ticks += 1
                demands = merge(ticks.open.pop(tick.index, {}))
                arrived = ticks.arrivals.pop(tick.index, NOTHING) if ticks.arrivals else NOTHING
                for record in self._cell(name).close(tick, demands, self._owned(name), arrived):
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

    def _take(self, said: DemandTick) -> None:
        ticks, config = self.ticks.get(said.cell), self.config
        if ticks is None:
            grace = config.lateness_ticks + STAGGER
            gate = Gate(said.tick.period_ns, config.lane_lateness_ticks, config.max_ahead_ticks, grace)
            ticks = self.ticks[said.cell] = CellDemand(gate)
        gate, index = ticks.gate, said.tick.index
        check_period(said.cell, said.source, said.tick, gate.period_ns)
        mark = said.part >= said.parts - 1
        in_time: Arrival = "ok" if index > gate.closed else "late"
        arrival = gate.arrive(said.source, index) if mark else in_time
        count(self.stats, arrival)
        if arrival == "ok":
            self._keep(ticks, said)
        elif mark:
            ticks.open.get(index, {}).pop(said.source, None)
            ticks.arrivals.get(index, {}).pop(said.source, None)

    def _keep(self, ticks: CellDemand, said: DemandTick) -> None:
        """Note demand by source and workload: a node lane that was restarted says some of it again."""
        have = ticks.open.setdefault(said.tick.index, {}).setdefault(said.source, {})
        have |= {demand.workload: demand for demand in said.demands}
        if said.arrivals:
            ticks.arrivals.setdefault(said.tick.index, {})[said.source] = said.arrivals

    def _cell(self, name: str) -> WorkloadCell:
        cell = self.cells.get(name)
        if cell is None:
            history = self.histories.get(name)
            mine = history.only(self._is_mine) if history is not None else None
            cell = self.cells[name] = WorkloadCell(name, self.source, self.config, self.directory, mine)
        return cell

    def _is_mine(self, workload: str) -> bool:
        return partition_of(workload.encode(), self.partitions) == self.partition

    def _owned(self, cell: str) -> list[WorkloadSpec]:
        known = self._owned_at.get(cell)
        if known is None or known[0] != self.directory.version:
            specs = self.directory.workloads(cell)
            mine = [s for s in specs if self._is_mine(s.workload)]
            known = self._owned_at[cell] = self.directory.version, mine
        return known[1]
