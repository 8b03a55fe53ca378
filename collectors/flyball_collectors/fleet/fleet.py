"""The simulated fleet: the same messages as real agents and feeds send, from a seed and a start."""

import numpy as np
from msgspec.structs import replace

from flyball_collectors.fleet.faults import Faults, Sick
from flyball_collectors.fleet.gpus import KINDS, Gpus
from flyball_collectors.fleet.hosts import Hosts
from flyball_collectors.fleet.loads import BatchLoad, Load, Moment, NotebookLoad, Running, ServiceLoad, TrainingLoad
from flyball_collectors.fleet.loads.base import READY
from flyball_collectors.fleet.placement import FREE, Placement
from flyball_collectors.fleet.signals import make_signals
from flyball_collectors.fleet.site import Floats, build_site
from flyball_collectors.fleet.specs import all_workloads, make_demanded, make_specs
from flyball_collectors.fleet.telemetry import frame_messages, make_inventory
from flyball_contracts.codec import Message, record_message
from flyball_contracts.config import FleetConfig
from flyball_contracts.errors import ConfigError, RecordError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import AnyDecision, Inventory, Migrate, Preempt, WorkloadSpec


class Fleet:
    """A simulated fleet whose event time starts at ``start_ns``.

    The same configuration, start and calls give the same bytes. Raises :class:`ConfigError` when the
    configuration contradicts itself or its workloads do not fit.
    """

    def __init__(self, config: FleetConfig, start_ns: int) -> None:
        self.config = config
        self.start_ns = start_ns
        self.period_ns = round(config.tick_s * NS_PER_S)
        self.site = build_site(config, start_ns)
        self._specs = make_specs(config, start_ns)
        self._index = {spec.workload: w for w, spec in enumerate(self._specs)}
        self._node_index = {node.name: i for i, node in enumerate(self.site.nodes)}
        self._kind_of = np.array([KINDS.index(spec.kind) for spec in self._specs], np.int64)
        self.placement = Placement(self.site, make_demanded(config, self.site, self._specs))
        self._place_at_start()
        self._faults = Faults(config, self.site, self.placement, start_ns)
        kinds = (
            ServiceLoad(0, config.services),
            TrainingLoad(len(config.services), config.trainings),
            NotebookLoad(len(config.services) + len(config.trainings), config.notebooks),
            BatchLoad(len(self._specs) - len(config.batches), config.batches),
        )
        self._services, self._batches = kinds[0], kinds[3]
        self._loads: list[Load] = [load for load in kinds if load.count]
        self._gpus = Gpus(self.site)
        self._hosts = Hosts(self.site)
        self._inventories: list[Inventory] = []
        self._epochs = [0] * len(self.site.nodes)
        self._announce(start_ns)
        self._next = 0

    @property
    def workloads(self) -> tuple[WorkloadSpec, ...]:
        """Specifications in force."""
        return tuple(self._specs)

    @property
    def nodes(self) -> tuple[Inventory, ...]:
        """Inventories in force."""
        return tuple(self._inventories)

    def replicas(self, workload: str) -> int:
        """Number of replicas that are placed, ready or not; :class:`RecordError` for an unknown workload."""
        return len(self.placement.placed[self._workload(workload)])

    def queued(self, workload: str) -> float:
        """Work that waits in front of a service, in tokens; :class:`RecordError` for any other workload."""
        w = self._workload(workload)
        if w >= self._services.count:
            raise RecordError(f"{workload} is not a service and has no queue")
        return float(self._services.queued_work[w])

    def messages_at_start(self) -> list[Message]:
        """Specifications, signals and inventories."""
        specs = [record_message(spec, self._source) for spec in self._specs]
        return specs + self._signal_messages(self.start_ns) + [self._inventory_message(i) for i in self._inventories]

    def tick(self, index: int) -> list[Message]:
        """All messages of tick ``index``: what changed, then events, then the frames of each node.

        Ticks are called in order from 0 (``ValueError`` otherwise), and tick 0 is at ``start_ns``.
        """
        if index != self._next:
            raise ValueError(f"tick {index} out of order; the next is {self._next}")
        self._next += 1
        now_ns = self.start_ns + index * self.period_ns
        moment = Moment(index, index * self.config.tick_s, self.config.tick_s, self.config.seed)
        # A generator per tick: what one tick draws cannot shift the numbers of the next.
        random = np.random.Generator(np.random.Philox(key=[self.config.seed, index]))
        messages = self._finished(now_ns)
        if index and moment.t_s // self.config.signal_every_s > (index - 1) * moment.dt_s // self.config.signal_every_s:
            messages += self._signal_messages(now_ns)
        if self.placement.changed:
            self.placement.settle(now_ns)
            messages += [self._inventory_message(inventory) for inventory in self._announce(now_ns)]
        messages += [record_message(e, f"/agents/{e.node}") for e in self._faults.events(moment)]
        blocks = self._measure(moment, now_ns, random)
        return messages + frame_messages(
            self.site, blocks, self._rows.starts, self._epochs, index, now_ns, self.period_ns
        )

    def scale(self, workload: str, replicas: int) -> int:
        """Ask for a number of replicas; returns how many have a place now, the rest waits for room.

        Raises :class:`RecordError` for an unknown workload or a number that it cannot have.
        """
        return self.placement.want(self._workload(workload), replicas, self._now_ns)

    def pause(self, workload: str, replicas: int = 0) -> int:
        """Leave a workload only ``replicas``; returns how many it keeps. Errors as in :meth:`scale`."""
        return self.scale(workload, min(replicas, self.replicas(workload)))

    def migrate(self, workload: str, replica: str, to_node: str = "", from_device: str = "") -> str:
        """Move a replica, to ``to_node`` or wherever there is room; returns the new node, empty when there is none.

        Nothing is placed on ``from_device`` any more. Raises :class:`RecordError` for names that do not exist.
        """
        w = self._workload(workload)
        if to_node and to_node not in self._node_index:
            raise RecordError(f"{workload}: there is no node {to_node!r}")
        if from_device:
            self.placement.cordon(self._device_row(from_device))
        target = self._node_index[to_node] if to_node else None
        found = self.placement.migrate(w, replica, target, self._now_ns)
        return "" if found is None else self.site.nodes[found].name

    def apply(self, decision: AnyDecision) -> str:
        """Obey a decision from the next tick on; returns what became of it, in words.

        Raises :class:`RecordError` when it cannot be obeyed.
        """
        if isinstance(decision, Migrate):
            node = self.migrate(decision.workload, decision.replica, decision.to_node, decision.from_device)
            return f"{decision.replica} moved to {node}" if node else f"{decision.replica} stays: no node has room"
        act = self.pause if isinstance(decision, Preempt) else self.scale
        return f"{decision.workload} has {act(decision.workload, decision.replicas)} replicas placed"

    @property
    def _now_ns(self) -> int:
        """Event time of the next tick, when changes take effect."""
        return self.start_ns + self._next * self.period_ns

    @property
    def _source(self) -> str:
        return f"/cells/{self.config.cell}"

    def _workload(self, name: str) -> int:
        w = self._index.get(name)
        if w is None or self._specs[w].removed:
            raise RecordError(f"workload {name!r} does not run in cell {self.config.cell}")
        return w

    def _device_row(self, device: str) -> int:
        for node in self.site.nodes:
            for row, candidate in enumerate(node.devices, node.first):
                if candidate.id == device:
                    return row
        raise RecordError(f"there is no device {device!r} in cell {self.config.cell}")

    def _place_at_start(self) -> None:
        for w, workload in enumerate(all_workloads(self.config)):
            placed = self.placement.want(w, workload.replicas, self.start_ns)
            if placed < workload.replicas:
                raise ConfigError(
                    f"workload {workload.name}: only {placed} of {workload.replicas} replicas fit; "
                    "give its pools more nodes or its neighbours fewer replicas"
                )
        for placed_replicas in self.placement.placed:
            for replica in placed_replicas:
                replica.ready_ns = self.start_ns

    def _announce(self, now_ns: int) -> list[Inventory]:
        """New inventories of the nodes whose allocations changed, of all at the start."""
        everywhere = range(len(self.site.nodes))
        changed = sorted(self.placement.changed) if self._inventories else everywhere
        self.placement.changed.clear()
        self._rows = self.placement.rows()
        self._gpus.settle(self._rows, self._kind_of)
        self._rows_of = [
            np.flatnonzero((self._rows.workload >= load.first) & (self._rows.workload < load.first + load.count))
            for load in self._loads
        ]
        held = self.placement.allocations(changed)
        found: list[Inventory] = []
        for i in changed:
            self._epochs[i] += 1
            found.append(make_inventory(self.config, self.site.nodes[i], held[i], self._epochs[i], now_ns))
        if self._inventories:
            for i, inventory in zip(changed, found, strict=True):
                self._inventories[i] = inventory
        else:
            self._inventories = found
        return found

    def _finished(self, now_ns: int) -> list[Message]:
        """Take away the batch jobs that are done."""
        messages: list[Message] = []
        for i in np.flatnonzero(self._batches.progress >= 1.0).tolist():
            w = self._batches.first + i
            if not self._specs[w].removed:
                self.placement.want(w, 0, now_ns)
                self._specs[w] = replace(self._specs[w], removed=True, time_ns=now_ns)
                messages.append(record_message(self._specs[w], self._source))
        return messages

    def _measure(self, moment: Moment, now_ns: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Let time pass and read all sensors: the blocks of the GPU, host and workload frames."""
        rows, workloads = self._rows, len(self._specs)
        count = len(rows.workload)
        sick = self._faults.sick(moment, random)
        ready = rows.ready_ns <= now_ns
        running = Running(
            workload=rows.workload,
            number=rows.number,
            ready=ready,
            replicas_of=np.bincount(rows.workload, minlength=workloads).astype(np.int64),
            ready_of=np.bincount(rows.workload[ready], minlength=workloads).astype(np.int64),
            speed=self._speed(sick),
            use=np.zeros(count, np.float32),
            work=np.zeros(count, np.float32),
            io=np.zeros(count, np.float32),
            report=np.full((count, len(WORKLOAD)), np.nan, np.float32),
        )
        running.report[:, READY] = ready
        for load, mine in zip(self._loads, self._rows_of, strict=True):
            load.step(moment, random, running, mine)
        gpu = self._gpus.step(moment.dt_s, random, running, rows, sick)
        host = self._hosts.step(moment.t_s, moment.dt_s, random, running, rows, self._gpus)
        return gpu.T, host.T, running.report

    def _speed(self, sick: list[Sick]) -> Floats:
        """Pace of each workload's slowest GPU."""
        speed = np.ones(len(self._specs), np.float32)
        for one in sick:
            workload = int(self.placement.owner[one.row])
            if workload != FREE:
                speed[workload] = min(speed[workload], one.pace)
        return speed

    def _signal_messages(self, now_ns: int) -> list[Message]:
        return [record_message(s, f"/zones/{s.zone}") for s in make_signals(self.config, self.start_ns, now_ns)]

    def _inventory_message(self, inventory: Inventory) -> Message:
        return record_message(inventory, f"/agents/{inventory.node}")
