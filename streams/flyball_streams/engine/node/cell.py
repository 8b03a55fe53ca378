"""The devices and hosts of one cell in a node lane, and the records of each closed tick."""

from collections.abc import Iterable, Iterator
from math import ceil
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.metrics import GATEWAY, GPU, HOST, SERVING, USAGE, WORKLOAD
from flyball_contracts.records import (
    Anomaly,
    Device,
    Evidence,
    Gateway,
    Inventory,
    NodeEvent,
    Proposal,
    ProposalTick,
    Record,
    TableOffsets,
    Tick,
)
from flyball_streams.engine.budget import BUDGET_S, GPUS_SHARE, HELD_UP_SHARE, HOSTS_SHARE, SILENCE_SHARE, score
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.node.arrivals import arrivals
from flyball_streams.engine.node.demand import demand_ticks
from flyball_streams.engine.node.detectors.absences import Absences
from flyball_streams.engine.node.detectors.gangs import Gangs
from flyball_streams.engine.node.detectors.health import SUSPECT, Finding, Health
from flyball_streams.engine.node.detectors.neighbours import Neighbours
from flyball_streams.engine.node.detectors.pressure import Pressure
from flyball_streams.engine.node.detectors.subspaces import Subspaces
from flyball_streams.engine.node.hanging import Hanging
from flyball_streams.engine.node.intake import Entry
from flyball_streams.engine.node.links import Links
from flyball_streams.engine.node.profile import Profiles
from flyball_streams.engine.node.serving import ServingMetrics
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.node.training import TrainingWorkloads
from flyball_streams.engine.node.usage import UsageMeter, is_due
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.offsets import NO_OFFSETS
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.symptoms import Symptoms

GPU_WATCHED = {
    "hw.gpu.utilization{task=general}": 0.05,
    "hw.gpu.memory.utilization": 0.03,
    "hw.power": 20.0,
    "hw.temperature{sensor=gpu}": 3.0,
    "nvidia.gpu.clock.frequency{clock=sm}": 20e6,
    "nvidia.gpu.sm.activity": 0.05,
    "hw.gpu.io{direction=receive}": 1e9,
    "hw.errors{type=corrected}": 1.0,
}
HOST_WATCHED = {
    "system.cpu.utilization": 0.1,
    "system.memory.utilization": 0.03,
    "system.linux.psi.total_time{resource=cpu,stall=some}": 0.1,
    "system.linux.psi.total_time{resource=memory,stall=some}": 0.05,
    "system.linux.psi.total_time{resource=io,stall=some}": 0.1,
}
REPEAT_TICKS = 30
GONE_TICKS, GONE_S = 600, 600.0
"""A node that was silent for the longer of these is dropped, with its allocations; that it is silent is remembered."""
MAX_PENDING_EVENTS = 4096
"""Most events that wait for their tick; more come only from a clock that runs ahead."""


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
        self.source = f"node/{partition}"
        self.config = config
        self.directory = directory
        self.demand_partitions = demand_partitions
        rate = config.health.false_incidents_per_1000_gpu_days / BUDGET_S
        self.gpus = SubjectTable(GPU, GPU_WATCHED, GPUS_SHARE * rate, capacity, 2 * partition)
        self.hosts = SubjectTable(HOST, HOST_WATCHED, HOSTS_SHARE * rate, phase=2 * partition + 1)
        self.profiles = Profiles(cell, partition, config, directory, self.gpus.capacity)
        self.health = Health(self.gpus.capacity)
        self.links = Links(cell, self.gpus.capacity)
        self.inventories: dict[str, Inventory] = {}
        self.rows: dict[str, NDArray[np.int64]] = {}
        self.host_rows: dict[str, NDArray[np.int64]] = {}
        self.seen: dict[str, int] = {}
        self.last_found: dict[str, int] = {}
        self.superseded = 0
        self.tenancy = Tenancy({}, {}, self.gpus.capacity)
        self.meter = UsageMeter(self.gpus.capacity)
        self.serving = ServingMetrics()
        self.pending_events: list[NodeEvent] = []
        self.training = TrainingWorkloads(directory, self.profiles)
        self.gangs = Gangs(directory, self.training)
        self.hanging = Hanging(cell, directory, self.training, self.gpus.capacity)
        self.absences = Absences(partition, node_partitions)
        self.pressure = Pressure(cell, self.hosts.capacity)
        self.subspaces = Subspaces(cell, self.hosts.capacity)
        self.neighbours = Neighbours()

    def note_late(self, nodes: Iterable[str]) -> None:
        """Note nodes whose frames came too late for a tick."""
        for node in nodes:
            if node in self.inventories:
                self.absences.observe(node, self.seen[node])

    def note_removed(self, nodes: Iterable[str]) -> None:
        """Note nodes whose inventories were removed."""
        for node in nodes:
            self.absences.remove(node)

    def note(self, event: NodeEvent) -> None:
        """Add an event of one of the cell's nodes; it counts from its tick on."""
        self.pending_events.append(event)

    def close(self, tick: Tick, entries: list[Entry], table_offsets: TableOffsets = NO_OFFSETS) -> Iterator[Record]:
        """Records of one closed tick, in a fixed order; its demand comes last and carries ``table_offsets``."""
        self._update_inventories(entries, tick)
        gateway_rows = self._fill(entries)
        if self.gpus.mask.any():  # else no window ends that would take it
            self.hanging.note(self.tenancy)
        symptoms, proposals = Symptoms(), list[Proposal]()
        self._apply_events(tick, symptoms)
        for absence in self.absences.step(tick, self.inventories.keys(), SILENCE_SHARE * self._rate_of_a_node()):
            symptoms.note(absence)
        for record in self._detect(tick, proposals):
            if isinstance(record, Anomaly):
                symptoms.note_anomaly(record)
            yield record
        if proposals:
            yield ProposalTick(cell=self.cell, source=self.source, tick=tick, proposals=tuple(proposals), closes=False)
        yield from symptoms.messages(self.cell, self.source, tick, first_part=1)
        self.meter.note(self.gpus.values)
        usage = self.meter.drain(self.tenancy) if is_due(tick) else ()
        demands = self.tenancy.demands(self.gpus.values, usage)
        demands = self.serving.annotate(demands)
        demands = self.gangs.annotate(demands, self.gpus, self.tenancy, self.health.failing())
        demands = self.profiles.annotate(demands, tick, self.tenancy)
        seen = arrivals(gateway_rows) if gateway_rows else ()
        yield from demand_ticks(demands, self.demand_partitions, self.cell, self.source, tick, seen, table_offsets)

    def _detect(self, tick: Tick, proposals: list[Proposal]) -> Iterator[Record]:
        """Anomalies and profiles of a tick; proposals are added to the list."""
        means = self.gpus.means(tick)
        if means is not None and means.mask.any():
            yield from self._anomalies(self.gpus, means, tick, self.tenancy.peer_group)
            yield from self.hanging.step(tick, means, self.gpus, self.tenancy, self.profiles)
        if self.gpus.mask.any():
            yield from self.profiles.step(tick, self.gpus, self.hosts, self.tenancy, self.inventories)
            yield from self.links.step(tick, self.gpus, self.tenancy)
            yield from self._unhealthy(tick, proposals)
        yield from self._owner_notices(tick)
        means = self.hosts.means(tick)
        if means is not None and means.mask.any():
            yield from self._anomalies(self.hosts, means, tick, np.full(self.hosts.capacity, -1, np.int32))
            yield from self._held_up(means, tick)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "gpus": self.gpus.state(),
            "hosts": self.hosts.state(),
            "profiles": self.profiles.state(),
            "health": self.health.state(),
            "hanging": self.hanging.state(),
            "links": self.links.state(),
            "inventories": [pack_struct(i) for i in self.inventories.values()],
            "seen": self.seen,
            "last_found": self.last_found,
            "superseded": self.superseded,
            "pending_events": [pack_struct(event) for event in self.pending_events],
            "meter": self.meter.state(),
            "absences": self.absences.state(),
            "pressure": self.pressure.state(),
            "subspaces": self.subspaces.state(),
            "neighbours": self.neighbours.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.gpus.load(state["gpus"])
        self.hosts.load(state["hosts"])
        self.profiles.load(state["profiles"], self.gpus.capacity)
        self.health.load(state["health"], self.gpus.capacity)
        self.hanging.load(state["hanging"], self.gpus.capacity)
        self.links.load(state["links"], self.gpus.capacity)
        inventories = [unpack_struct(raw, Inventory) for raw in state["inventories"]]
        self.inventories = {i.node: i for i in inventories}
        slots = self.gpus.slots
        self.rows = {i.node: np.array([slots[d.id] for d in i.devices], np.int64) for i in inventories}
        self.host_rows = {}
        self.seen = dict(state["seen"])
        self.last_found = dict(state["last_found"])
        self.superseded = state["superseded"]
        self.pending_events = [unpack_struct(raw, NodeEvent) for raw in state["pending_events"]]
        self.tenancy = Tenancy(self.inventories, self.gpus.slots, self.gpus.capacity)
        self.meter.load(state["meter"], self.tenancy)
        self.absences.load(state["absences"])
        self.pressure.load(state["pressure"], self.hosts.capacity)
        self.neighbours.load(state["neighbours"])
        self.subspaces.load(state["subspaces"], self.hosts.capacity)

    def _update_inventories(self, entries: list[Entry], tick: Tick) -> None:
        """Apply the inventories that this tick's frames refer to, and drop nodes that were silent for long."""
        changed, index = False, tick.index
        self.gpus.reserve(dict.fromkeys(d.id for new, _ in entries if new.node not in self.rows for d in new.devices))
        latest: Inventory | None = None
        for new, _ in entries:
            if new is latest:
                continue  # the frames of a node come together
            latest = new
            self.seen[new.node] = index
            self.absences.observe(new.node, index)
            old = self.inventories.get(new.node)
            if old is new or (old is not None and not _replaces(new, old)):
                continue
            self._apply_inventory(new, old)
            changed = True
        gone_ticks = max(GONE_TICKS, ceil(GONE_S * NS_PER_S / tick.period_ns))
        for node in [node for node in self.absences.silent_for(gone_ticks) if node in self.seen]:
            self.absences.drop(node)
            del self.seen[node], self.rows[node]
            self._retire(self.inventories.pop(node).devices, node)
            self.hosts.retire((node,), node)
            self.host_rows.pop(node, None)
            changed = True
        if changed:
            before, self.tenancy = self.tenancy, Tenancy(self.inventories, self.gpus.slots, self.gpus.capacity)
            self.meter.follow(self.tenancy)
            self._reset_changed(before, self.tenancy)

    def _reset_changed(self, before: Tenancy, now: Tenancy) -> None:
        """Reset the baselines of devices and hosts whose work has changed: a change of work is no anomaly."""
        old, new = before.replica_of_slot, now.replica_of_slot
        moved = sorted(slot for slot in old.keys() | new.keys() if old.get(slot) != new.get(slot))
        self.gpus.forget(moved)
        self.profiles.forget(moved)
        self.hanging.reset(moved)
        self.hanging.forget_pages()
        at = {node: int(self._host_row(node)[0]) for node in now.workloads_of_node}  # a new one gets its slot here
        changed = [n for n in at if before.workloads_of_node.get(n) != now.workloads_of_node[n]]
        other = {at[n]: self.directory.kinds_of_work(now.workloads_of_node[n]) for n in changed}
        self.hosts.forget(list(other))
        self.pressure.wipe(list(other))
        self.subspaces.change(other)

    def _apply_inventory(self, new: Inventory, old: Inventory | None) -> None:
        if old is not None and old.boot_id != new.boot_id:
            self.health.forget([d.id for d in old.devices])
        if old is not None:
            kept = {d.id for d in new.devices}
            self._retire([d for d in old.devices if d.id not in kept], old.node)
        self.inventories[new.node] = new
        self.rows[new.node] = self.gpus.rows(tuple(d.id for d in new.devices), new.node)
        capacity, recycled = self.gpus.capacity, self.gpus.recycled
        if capacity != self.profiles.capacity:
            self.health.resize(capacity)
            self.hanging.resize(capacity)
            self.links.resize(capacity)
        self.profiles.follow(capacity, recycled)
        if recycled:
            self.health.reset(recycled)
            self.hanging.reset(recycled)
            self.links.reset(recycled)

    def _retire(self, devices: Iterable[Device], node: str) -> None:
        gone = self.gpus.retire((d.id for d in devices), node)
        self.health.forget(gone)
        self.links.forget(gone)

    def _apply_events(self, tick: Tick, symptoms: Symptoms) -> None:
        """Apply the events of known nodes up to this tick; a worker with a backlog may have read later ones."""
        known = self.inventories
        due = [e for e in self.pending_events if e.time_ns < tick.end_ns and e.node in known]
        later = [e for e in self.pending_events if e.time_ns >= tick.end_ns or e.node not in known]
        self.pending_events = later[-MAX_PENDING_EVENTS:]
        instances = {node: _instances(known[node].devices) for node in {event.node for event in due}}
        for event in sorted(due, key=lambda e: (e.time_ns, e.id)):
            self.absences.note(event, tick.period_ns, holds_work=known[event.node].holds_work)
            holder = self._holder(event.device)
            symptoms.note_event(event, holder)
            if event.device and event.device not in instances[event.node]:
                self.health.note(event.device, event, holder)
                self.links.note(event.device, event)
                continue
            for device in affected_devices(event, known[event.node].devices):
                self.health.note(device, event, self._holder(device))
                self.links.note(device, event)

    def _holder(self, device: str) -> str:
        return self.tenancy.replica_of_slot.get(self.gpus.slots.get(device, -1), ("", ""))[0]

    def _fill(self, entries: list[Entry]) -> list[tuple[tuple[Gateway, ...], NDArray[np.float32]]]:
        """Fill in the values of a tick; return the rows of gateways, which are not kept."""
        self.gpus.clear()
        self.hosts.clear()
        self.tenancy.clear()
        gpus: list[tuple[NDArray[np.int64], bytes]] = []
        hosts: list[tuple[NDArray[np.int64], bytes]] = []
        gateway_rows: list[tuple[tuple[Gateway, ...], NDArray[np.float32]]] = []
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
                self.neighbours.note(held, frame.values, frame.period_ns / NS_PER_S, frame.time_ns)
            elif schema == SERVING.schema:
                first = self.tenancy.first_row[inventory.node]
                self.serving.note(self.tenancy.workload_of_allocation[first : first + frame.rows], frame.values)
            elif schema == GATEWAY.schema:
                gateway_rows.append((inventory.gateways, frame.values))
        self.gpus.put(gpus)
        self.hosts.put(hosts)
        return gateway_rows

    def _host_row(self, node: str) -> NDArray[np.int64]:
        """Slot of a host, ``int64[1]``; a new one gets its own."""
        row = self.host_rows.get(node)
        if row is None:
            row = self.host_rows[node] = self.hosts.rows((node,), node)
            if self.hosts.recycled:
                self.pressure.wipe(self.hosts.recycled)
                self.subspaces.wipe(self.hosts.recycled)
        return row

    def _anomalies(self, table: SubjectTable, means: Means, tick: Tick, group: NDArray[np.int32]) -> Iterator[Anomaly]:
        for slot, rate, value, expected, since_s in table.departures(means, group):
            rarest: list[int] = np.argsort(rate, kind="stable")[:3].tolist()
            evidence = tuple(
                Evidence(
                    name=table.watched[m],
                    value=float(value[m]),
                    expected=float(expected[m]),
                    unit=table.layout.metrics[int(table.columns[m])].unit,
                )
                for m in rarest
                if np.isfinite(rate[m])
            )
            expected_false = float(rate.min()) * BUDGET_S
            anomaly = self._anomaly(table, slot, tick, "departure", score(expected_false, table.budget), evidence)
            since_ns = tick.end_ns - round(since_s * NS_PER_S)
            yield replace(anomaly, since_ns=max(0, since_ns), false_per_1000_gpu_days=expected_false)

    def _anomaly(
        self, table: SubjectTable, slot: int, tick: Tick, detector: str, score: float, evidence: tuple[Evidence, ...]
    ) -> Anomaly:
        subject = table.names[slot]
        workload, _ = self.tenancy.replica_of_slot.get(slot, ("", "")) if table is self.gpus else ("", "")
        return Anomaly(
            id=record_id("Anomaly", self.cell, subject, detector, tick.index),
            subject=subject,
            cell=self.cell,
            node=table.owner[slot],
            time_ns=tick.end_ns,
            detector=detector,
            score=score,
            evidence=evidence,
            workload=workload,
        )

    def _held_up(self, means: Means, tick: Tick) -> Iterator[Anomaly]:
        """Nodes with work that their hosts slow down, and hosts that leave their usual variation."""
        for part in (self.pressure, self.subspaces):
            if part.capacity != self.hosts.capacity:
                part.resize(self.hosts.capacity)
        work, numbers = np.full(self.hosts.capacity, -1, np.int32), dict[frozenset[str], int]()
        for node, held in self.tenancy.workloads_of_node.items():
            slot = self.hosts.slots.get(node)
            if held and slot is not None and means.mask[slot]:
                work[slot] = numbers.setdefault(frozenset(held), len(numbers))
        self.neighbours.keep(self.inventories)

        def noisy_neighbour(node: str, resource: str) -> Evidence | None:
            return self.neighbours.noisy_neighbour(self.inventories[node], resource, tick.end_ns)

        rate = self._rate_of_a_node()
        yield from self.pressure.step(tick, self.hosts, means, work, HELD_UP_SHARE * rate, noisy_neighbour)
        yield from self.subspaces.step(tick, self.hosts, means, work, rate)

    def _rate_of_a_node(self) -> float:
        """Budget of false incidents a second of a node with as many GPUs as nodes have here."""
        gpus = sum(len(inventory.devices) for inventory in self.inventories.values())
        rate = self.config.health.false_incidents_per_1000_gpu_days / BUDGET_S
        return rate * max(1.0, gpus / max(1, len(self.inventories)))

    def _owner_notices(self, tick: Tick) -> Iterator[Anomaly]:
        """Anomalies for the owners of workloads: errors of their programs, which move no work."""
        for workload, event, devices in self.health.attribution.take_notices():
            code = event.code or 0
            evidence = (
                Evidence(name="xid", value=float(code), record=event.id),
                Evidence(name="devices", value=float(devices), unit="{device}"),
            )
            yield Anomaly(
                id=record_id("Anomaly", self.cell, workload, "application", code, event.id),
                subject=workload,
                cell=self.cell,
                node=event.node,
                time_ns=tick.end_ns,
                detector="application",
                score=0.5,
                evidence=evidence,
                workload=workload,
                since_ns=event.time_ns,
            )

    def _unhealthy(self, tick: Tick, proposals: list[Proposal]) -> Iterator[Anomaly]:
        table = self.gpus
        self.last_found = {d: i for d, i in self.last_found.items() if 0 <= tick.index - i < REPEAT_TICKS}
        skip = {table.slots[d] for d in self.last_found if d in table.slots}
        for finding in self.health.findings(
            table.values, table.mask, self.gangs.whole(self.tenancy), table.slots, table.names, skip
        ):
            subject = table.names[finding.slot]
            self.last_found[subject] = tick.index
            anomaly = self._anomaly(table, finding.slot, tick, finding.detector, finding.score, finding.evidence)
            yield anomaly
            proposals.append(self._proposal(finding, anomaly, tick))

    def _proposal(self, finding: Finding, anomaly: Anomaly, tick: Tick) -> Proposal:
        holder = self.tenancy.replica_of_slot.get(finding.slot, ("", ""))
        workload, replica = ("", "") if finding.detector == SUSPECT else holder
        return Proposal(
            id=record_id("Proposal", "migrate", self.cell, anomaly.subject, tick.index),
            action="migrate",
            workload=workload,
            reason=f"device {anomaly.subject} of {anomaly.node} is {finding.detector}: {finding.reason}",
            replica=replica,
            node=anomaly.node,
            device=anomaly.subject,
            confidence=0.95 if finding.detector == "failing" else 0.8,
            evidence=(*finding.evidence, Evidence(name="anomaly", value=finding.score, record=anomaly.id)),
        )


def _replaces(new: Inventory, old: Inventory) -> bool:
    """Whether an inventory is the newer one of its node; frames of an earlier boot do not come here."""
    return new.boot_id != old.boot_id or (new.epoch, new.time_ns) > (old.epoch, old.time_ns)


def _instances(devices: tuple[Device, ...]) -> frozenset[str]:
    """GPUs that are divided into MIG instances."""
    return frozenset(d.parent for d in devices if d.parent is not None)


def affected_devices(event: NodeEvent, devices: tuple[Device, ...]) -> list[str]:
    """Devices that an event affects: all of the node, or one device with its MIG instances."""
    if not event.device:
        return [d.id for d in devices]
    return [event.device, *(d.id for d in devices if d.parent == event.device)]
