"""The devices and hosts of one cell in a node lane, and the records of each closed tick."""

from collections.abc import Iterable, Iterator
from itertools import chain
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.frame import Frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GATEWAY, GPU, HOST, SERVING, USAGE, WORKLOAD
from flyball_contracts.records import (
    Anomaly,
    Gateway,
    Inventory,
    NodeEvent,
    Proposal,
    ProposalTick,
    Record,
    TableOffsets,
    Tick,
)
from flyball_streams.engine.budget import (
    BUDGET_S,
    GPUS_SHARE,
    HOST_SOJOURNS_SHARE,
    HOSTS_SHARE,
    LOST_SHARE,
    SOJOURNS_SHARE,
)
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.lane import OF_NODES
from flyball_streams.engine.node.demand.arrivals import arrivals
from flyball_streams.engine.node.demand.latencies import ReplicaLatencies
from flyball_streams.engine.node.demand.serving import ServingMetrics
from flyball_streams.engine.node.demand.ticks import demand_ticks
from flyball_streams.engine.node.demand.usage import UsageMeter, is_due
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.detectors.absences import Absences
from flyball_streams.engine.node.detectors.departures import GPU_WATCHED, HOST_WATCHED, Departures
from flyball_streams.engine.node.detectors.gangs import Gangs
from flyball_streams.engine.node.detectors.hanging import Hanging
from flyball_streams.engine.node.detectors.health import Health
from flyball_streams.engine.node.detectors.links import Links
from flyball_streams.engine.node.detectors.lost_devices import LostDevices
from flyball_streams.engine.node.detectors.pressure import Pressure
from flyball_streams.engine.node.detectors.sojourns import GPU_STATES, HOST_STATES, Sojourns
from flyball_streams.engine.node.detectors.stuck import StuckSensors
from flyball_streams.engine.node.detectors.subspaces import Subspaces
from flyball_streams.engine.node.events import PendingEvents
from flyball_streams.engine.node.intake import Entry
from flyball_streams.engine.node.profile import Profiles
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.node.training import TrainingWorkloads
from flyball_streams.engine.offsets import NO_OFFSETS
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.symptoms import Symptoms

GONE_TICKS, GONE_S = 600, 600.0
"""A node that was silent for the longer of these is dropped, with its allocations; only its silence is remembered."""


class NodeCell:
    """Devices and hosts of one cell in one partition."""

    def __init__(
        self,
        cell: str,
        partition: int,
        config: Parameters,
        directory: FleetIndex,
        demand_partitions: int,
        capacity: int = 0,
        node_partitions: int = 0,
    ) -> None:
        self.cell = cell
        self.partition = partition
        self.source = f"{OF_NODES}{partition}"
        self.config = config
        self.directory = directory
        self.demand_partitions = demand_partitions
        self.rate = config.health.false_incidents_per_1000_gpu_days / BUDGET_S
        self.gpus = SubjectTable(GPU, capacity, 2 * partition)
        self.hosts = SubjectTable(HOST, phase=2 * partition + 1)
        slots, host_slots = self.gpus.capacity, self.hosts.capacity
        self.profiles = Profiles(cell, partition, config, slots)
        training = TrainingWorkloads(directory, self.profiles)
        self.gangs = Gangs(directory, training)
        self.health = Health(self.gangs, slots)
        self.absences = Absences(partition, node_partitions)
        sensors = StuckSensors(slots)
        hanging = Hanging(training, self.profiles, slots)
        gpu_detectors: tuple[Detector[Any], ...] = (
            Departures(self.gpus, GPU_WATCHED, GPUS_SHARE * self.rate),
            hanging,
            self.profiles,
            Links(slots),
            sensors,
            Sojourns(self.gpus, GPU_STATES, SOJOURNS_SHARE * self.rate, sensors),
            LostDevices(self.gpus, LOST_SHARE * self.rate),
            self.health,
        )
        host_detectors: tuple[Detector[Any], ...] = (
            Departures(self.hosts, HOST_WATCHED, HOSTS_SHARE * self.rate),
            Pressure(hanging.hung, host_slots),
            Subspaces(host_slots),
            Sojourns(self.hosts, HOST_STATES, HOST_SOJOURNS_SHARE * self.rate),
        )
        self.gpus.models, self.hosts.models = gpu_detectors, host_detectors
        self.detectors = (*gpu_detectors, *host_detectors)
        self.inventories: dict[str, Inventory] = {}
        self.rows: dict[str, NDArray[np.int64]] = {}
        self.host_rows: dict[str, NDArray[np.int64]] = {}
        self.seen: dict[str, int] = {}
        self.superseded = 0
        self.tenancy = Tenancy({}, {}, slots)
        self.meter = UsageMeter(slots)
        self.serving = ServingMetrics()
        self.latencies = ReplicaLatencies()
        self.events = PendingEvents()

    def note_late(self, nodes: Iterable[str]) -> None:
        """Note nodes whose frames came too late for a tick."""
        for node in nodes:
            if node in self.inventories:
                self.absences.observe([node], self.seen[node])

    def note_removed(self, nodes: Iterable[str]) -> None:
        """Note nodes whose inventories were removed."""
        for node in nodes:
            self.absences.remove(node)

    def note(self, event: NodeEvent) -> None:
        """Add an event of one of the cell's nodes; it counts from its tick on."""
        self.events.note(event)

    def close(self, tick: Tick, entries: list[Entry], table_offsets: TableOffsets = NO_OFFSETS) -> Iterator[Record]:
        """Records of one closed tick, in a fixed order; its demand comes last and carries ``table_offsets``."""
        self._update_inventories(entries, tick)
        gateway_rows, usage_frames = self._fill(entries)
        self.gpus.end_tick(tick)
        self.hosts.end_tick(tick)
        seen = CellTick(
            cell=self.cell,
            tick=tick,
            gpus=self.gpus,
            hosts=self.hosts,
            tenancy=self.tenancy,
            directory=self.directory,
            inventories=self.inventories,
            events=self.events.take(tick, self.inventories, self.gpus, self.tenancy),
            usage=usage_frames,
            node_rate=self.rate * max(1.0, self.tenancy.gpus / max(1, len(self.inventories))),
        )
        yield from self._detect(seen)
        self.meter.note(self.gpus.values)
        self.latencies.note(self.tenancy.values)
        ends_minute = is_due(tick)
        usage = self.meter.drain(self.tenancy) if ends_minute else ()
        demands = self.tenancy.demands(self.gpus.values, usage)
        if ends_minute:
            demands = self.latencies.drain(demands, self.tenancy)
        demands = self.serving.annotate(demands)
        demands = self.gangs.annotate(demands, self.gpus, self.tenancy, self.health.failing())
        demands = self.profiles.annotate(demands, tick, self.tenancy)
        arrived = arrivals(gateway_rows) if gateway_rows else ()
        yield from demand_ticks(demands, self.demand_partitions, self.cell, self.source, tick, arrived, table_offsets)

    def _detect(self, seen: CellTick) -> Iterator[Record]:
        """Records of the detectors, then their proposals, and the symptoms of the tick."""
        symptoms, proposals = Symptoms(), list[Proposal]()
        for event, devices in seen.events:
            symptoms.note_event(event, devices.get(event.device, ""))
        for silence in self.absences.step(seen):
            symptoms.note(silence)
        for found in chain.from_iterable(detector.step(seen) for detector in self.detectors):
            if isinstance(found, Proposal):
                proposals.append(found)
                continue
            if isinstance(found, Anomaly):
                symptoms.note_anomaly(found)
            yield found
        if parts := tuple(proposals):
            yield ProposalTick(cell=self.cell, source=self.source, tick=seen.tick, proposals=parts, closes=False)
        yield from symptoms.messages(self.cell, self.source, seen.tick, first_part=1)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "gpus": self.gpus.state(),
            "hosts": self.hosts.state(),
            "absences": self.absences.state(),
            "inventories": [pack_struct(i) for i in self.inventories.values()],
            "seen": self.seen,
            "superseded": self.superseded,
            "events": self.events.state(),
            "meter": self.meter.state(),
            "latencies": self.latencies.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.gpus.load(state["gpus"])
        self.hosts.load(state["hosts"])
        self.absences.load(state["absences"])
        inventories = [unpack_struct(raw, Inventory) for raw in state["inventories"]]
        self.inventories = {i.node: i for i in inventories}
        slots = self.gpus.slots
        self.rows = {i.node: np.array([slots[d.id] for d in i.devices], np.int64) for i in inventories}
        self.host_rows = {}
        self.seen = dict(state["seen"])
        self.superseded = state["superseded"]
        self.events.load(state["events"])
        self.tenancy = Tenancy(self.inventories, self.gpus.slots, self.gpus.capacity)
        self.meter.load(state["meter"], self.tenancy)
        self.latencies.load(state["latencies"], self.tenancy)

    def _update_inventories(self, entries: list[Entry], tick: Tick) -> None:
        """Apply the inventories that this tick's frames refer to, and drop nodes that were silent for long."""
        changed, index = False, tick.index
        reporting = dict.fromkeys(new.node for new, _ in entries)
        if not self.rows.keys() >= reporting.keys():
            unknown = (new for new, _ in entries if new.node not in self.rows)
            self.gpus.reserve(dict.fromkeys(d.id for new in unknown for d in new.devices))
        self.seen.update(dict.fromkeys(reporting, index))
        self.absences.observe(reporting, index)
        latest: Inventory | None = None
        for new, _ in entries:
            if new is latest:
                continue  # the frames of a node come together
            latest = new
            old = self.inventories.get(new.node)
            if old is new or (old is not None and not _replaces(new, old)):
                continue
            self._apply_inventory(new, old)
            changed = True
        gone_ticks = max(GONE_TICKS, ceil(GONE_S * NS_PER_S / tick.period_ns))
        for node in [node for node in self.absences.silent_for(gone_ticks) if node in self.seen]:
            self.absences.drop(node)
            del self.seen[node], self.rows[node]
            self.gpus.retire([d.id for d in self.inventories.pop(node).devices], node)
            self.hosts.retire((node,), node)
            self.host_rows.pop(node, None)
            changed = True
        if changed:
            before, self.tenancy = self.tenancy, Tenancy(self.inventories, self.gpus.slots, self.gpus.capacity)
            self.meter.follow(self.tenancy)
            self.latencies.follow(self.tenancy)
            self._change_work(before, self.tenancy)

    def _change_work(self, before: Tenancy, now: Tenancy) -> None:
        """Notify the tables of devices and hosts whose work has changed."""
        old, new, kinds = before.replica_of_slot, now.replica_of_slot, self.directory.kinds_of_work
        moved = sorted(slot for slot in old.keys() | new.keys() if old.get(slot) != new.get(slot))
        self.gpus.change_work({slot: kinds([new[slot][0]] if slot in new else []) for slot in moved})
        at = {node: int(self._host_row(node)[0]) for node in now.workloads_of_node}  # a new one gets its slot here
        changed = [n for n in at if before.workloads_of_node.get(n) != now.workloads_of_node[n]]
        self.hosts.change_work({at[n]: kinds(now.workloads_of_node[n]) for n in changed})

    def _apply_inventory(self, new: Inventory, old: Inventory | None) -> None:
        if old is not None and old.boot_id != new.boot_id:
            for detector in self.detectors:
                detector.boot([d.id for d in old.devices])
        if old is not None:
            kept = {d.id for d in new.devices}
            self.gpus.retire([d.id for d in old.devices if d.id not in kept], old.node)
        self.inventories[new.node] = new
        self.rows[new.node] = self.gpus.rows(tuple(d.id for d in new.devices), new.node)

    def _fill(
        self, entries: list[Entry]
    ) -> tuple[list[tuple[tuple[Gateway, ...], NDArray[np.float32]]], list[tuple[Inventory, Frame]]]:
        """Fill in the values of a tick; return the frames that are not kept: rows of gateways, and frames of usage."""
        self.gpus.clear()
        self.hosts.clear()
        self.tenancy.clear()
        gpus: list[tuple[NDArray[np.int64], bytes]] = []
        hosts: list[tuple[NDArray[np.int64], bytes]] = []
        gateway_rows: list[tuple[tuple[Gateway, ...], NDArray[np.float32]]] = []
        usage: list[tuple[Inventory, Frame]] = []
        for inventory, frame in entries:
            held, schema = self.inventories[inventory.node], frame.schema
            if inventory is not held and inventory != held:
                self.superseded += 1  # the rows of an inventory that was replaced within this tick
            elif schema == GPU.schema:
                gpus.append((self.rows[inventory.node], frame.block))
            elif schema == HOST.schema:
                hosts.append((self._host_row(inventory.node), frame.block))
            elif schema == WORKLOAD.schema:
                first = self.tenancy.first_row[inventory.node]
                self.tenancy.values[first : first + frame.rows] = frame.values
            elif schema == USAGE.schema:
                first = self.tenancy.first_row[inventory.node]
                owners = self.tenancy.workload_of_allocation[first : first + frame.rows]
                self.meter.note_replicas(owners, frame.values, frame.period_ns / NS_PER_S)
                usage.append((held, frame))
            elif schema == SERVING.schema:
                first = self.tenancy.first_row[inventory.node]
                self.serving.note(self.tenancy.workload_of_allocation[first : first + frame.rows], frame.values)
                self.latencies.note_tokens(first, frame.values)
            elif schema == GATEWAY.schema:
                gateway_rows.append((inventory.gateways, frame.values))
        self.gpus.put(gpus)
        self.hosts.put(hosts)
        return gateway_rows, usage

    def _host_row(self, node: str) -> NDArray[np.int64]:
        """Slot of a host, ``int64[1]``; a new one gets its own."""
        row = self.host_rows.get(node)
        if row is None:
            row = self.host_rows[node] = self.hosts.rows((node,), node)
        return row


def _replaces(new: Inventory, old: Inventory) -> bool:
    """Whether an inventory is the newer one of its node; frames of an earlier boot do not come here."""
    return new.boot_id != old.boot_id or (new.epoch, new.time_ns) > (old.epoch, old.time_ns)
