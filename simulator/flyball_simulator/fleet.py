"""The simulated fleet: sends the messages of real agents and feeds, derived from a seed and a start."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from flyball_contracts.codec import Message, record_message
from flyball_contracts.config import FleetConfig
from flyball_contracts.errors import RecordError
from flyball_contracts.ids import record_id
from flyball_contracts.records import Account, AnyDecision, Inventory, SubjectState, WorkloadSpec
from flyball_contracts.records.events import node_event
from flyball_contracts.records.subjects import node_of, pool_of
from flyball_contracts.simulated import CellState, NodeState, Submission
from flyball_contracts.topics import EVENTS, INVENTORY, TELEMETRY
from flyball_simulator.cell.accounts import Meter
from flyball_simulator.cell.healing import Healing
from flyball_simulator.cell.plant import Plant
from flyball_simulator.hardware.hosts import Hosts
from flyball_simulator.operations import Ledger
from flyball_simulator.signals import EVERY_S, make_signals
from flyball_simulator.telemetry import FrameTime, frame_messages, make_inventory

OF_AGENTS = frozenset({TELEMETRY.name, EVENTS.name, INVENTORY.name})


class Fleet:
    """A simulated fleet whose event time starts at ``start_ns``, and the platform that runs it.

    The same configuration, start and calls give the same bytes. Raises :class:`ConfigError` if the configuration
    contradicts itself or its workloads do not fit.
    """

    def __init__(self, config: FleetConfig, start_ns: int) -> None:
        self.config, self.start_ns = config, start_ns
        self.plant = Plant(config, start_ns)
        self.site, self.placement, self.period_ns = self.plant.site, self.plant.placement, self.plant.period_ns
        self.operations = Ledger(self.plant)
        self._healing = Healing(self.plant)
        self._meter = Meter(self.plant, "actual")
        self._hosts = Hosts(self.site)
        self._epochs = [0] * len(self.site.nodes)
        self._inventories: dict[int, Inventory] = {}
        self._boots: dict[int, tuple[int, int]] = {}
        self._boot_ids = [node.boot_id for node in self.site.nodes]
        self._dark: set[int] = set()
        self._spooled: dict[bytes, list[Message]] = {}
        self._announce(np.flatnonzero(self.plant.machines.present).tolist(), start_ns)

    @property
    def workloads(self) -> tuple[WorkloadSpec, ...]:
        """Current specifications."""
        return tuple(self.plant.specs)

    @property
    def nodes(self) -> tuple[Inventory, ...]:
        """Current inventories."""
        return tuple(self._inventories[i] for i in sorted(self._inventories))

    def queued(self, workload: str) -> float:
        """Queued work of a service, in tokens; :class:`RecordError` for any other workload."""
        w = self.plant.workload(workload)
        if w >= self.plant.services.count:
            raise RecordError(f"{workload} is not a service and has no queue")
        return float(self.plant.services.queued[w])

    def messages_at_start(self) -> list[Message]:
        """Specifications, managed pools, signals and inventories."""
        specs = [record_message(spec, self._source) for spec in self.plant.specs]
        pools = self.plant.machines.records(self.config.cell, self.start_ns)
        specs += [record_message(pool, self._source) for pool in pools]
        return specs + self._signal_messages(self.start_ns) + [_inventory_message(i) for i in self.nodes]

    def tick(self, index: int) -> list[Message]:
        """All messages of tick ``index``: changed records, then events, then the frames of each node.

        Ticks are called in order from 0 (``ValueError`` otherwise), and tick 0 is at ``start_ns``.
        """
        plant = self.plant
        if index != plant.index:
            raise ValueError(f"tick {index} out of order; the next is {plant.index}")
        now_ns = plant.now_ns
        messages = [record_message(spec, self._source) for spec in plant.begin()]
        self._healing.advance()
        self.operations.advance()
        messages += self._machine_messages(now_ns)
        every_s, tick_s = EVERY_S, self.config.tick_s
        if index and index * tick_s // every_s > (index - 1) * tick_s // every_s:
            messages += self._signal_messages(now_ns)
        changed = sorted(self.placement.changed)
        messages += [_inventory_message(inventory) for inventory in self._announce(changed, now_ns)]
        step = plant.step()
        self._meter.add(step)
        moment, _, random, running, rows, gpu = step
        noticed = plant.reclaims.events(moment, self._inventories.keys())
        happened = [*noticed, *plant.outages.events(moment, self.start_ns), *plant.faults.events(moment)]
        messages += [record_message(e, f"/agents/{e.node}") for e in happened]
        dark, cut = plant.outages.dark(moment), plant.outages.cut(moment)
        messages += self._boot(dark, now_ns)
        host = self._hosts.step(moment.t_s, moment.dt_s, random, running, rows, plant.gpus)
        blocks = gpu.T, host.T, running.report, running.answers
        sent = FrameTime(now_ns, self.period_ns)
        on = {i: inventory for i, inventory in self._inventories.items() if i not in dark}
        messages += frame_messages(self.site, blocks, rows.starts, on, self._boots, sent)
        return self._delivered(messages, dark, cut) if dark or cut or self._spooled else messages

    def account(self) -> Account:
        """Cost and results up to the last tick."""
        return self._meter.account()

    def cell(self, speed: float) -> CellState:
        """State of the cell at the last tick; ``speed`` is the rate at which ticks are made."""
        alive = tuple(spec.workload for spec in self.plant.specs if not spec.removed)
        return CellState(
            cell=self.config.cell,
            now_ns=self.plant.clock_ns,
            speed=speed,
            nodes=len(self._inventories),
            workloads=alive,
        )

    def workload(self, name: str) -> SubjectState:
        """State of a workload at the last tick, or of a node or pool by the name that decisions use.

        Raises :class:`RecordError` if there is none.
        """
        if node := node_of(name):
            return self.plant.observe_node(self.plant.node(node))
        if pool := pool_of(name):
            self.plant.machines.pool(pool)
            return self.plant.machines.observe(pool)
        return self.plant.observe(self.plant.workload(name))

    def node(self, name: str) -> NodeState:
        """State of a node at the last tick; :class:`RecordError` if there is none."""
        for i in self._inventories:
            node = self.site.nodes[i]
            if node.name == name:
                usable = self.placement.usable[node.first : node.first + len(node.devices)].tolist()
                cordoned = tuple(d.id for d, ok in zip(node.devices, usable, strict=True) if not ok)
                return NodeState(node=name, schedulable=bool(self.placement.open[i]), cordoned=cordoned)
        raise RecordError(f"there is no node {name!r} in cell {self.config.cell}")

    def apply(self, decision: AnyDecision) -> str:
        """Carry out a decision from the next tick on; returns its progress as text.

        Raises :class:`RecordError` if it cannot be carried out.
        """
        return self.operations.submit(Submission(decision=decision)).detail

    @property
    def _source(self) -> str:
        return f"/cells/{self.config.cell}"

    def _announce(self, nodes: Sequence[int], now_ns: int) -> list[Inventory]:
        """Make new inventories of some nodes."""
        self.placement.changed.clear()
        if not nodes:
            return []
        nodes = [i for i in nodes if self.plant.machines.present[i]]
        held = self.placement.allocations(nodes)
        found: list[Inventory] = []
        for i in nodes:
            self._epochs[i] += 1
            self._boots.setdefault(i, (1, 0))
            open_ = bool(self.placement.open[i])
            node, epoch = self.site.nodes[i], self._epochs[i]
            usable = self.placement.usable[node.first : node.first + len(node.devices)].tolist()
            devices = tuple(replace(d, schedulable=ok) for d, ok in zip(node.devices, usable, strict=True))
            shown = node._replace(devices=devices, boot_id=self._boot_ids[i])
            inventory = make_inventory(self.config, shown, held[i], epoch, now_ns)
            found.append(inventory if open_ else replace(inventory, schedulable=False))
            self._inventories[i] = found[-1]
        return found

    def _machine_messages(self, now_ns: int) -> list[Message]:
        """Messages of agents on machines that were bought or are returned."""
        messages: list[Message] = []
        for i in self.plant.machines.arrived:
            boot, _ = self._boots.get(i, (0, 0))
            self._boots[i] = boot + 1, 0
            why = "machine bought" if self.site.nodes[i].extra else "machine back after its reclaim"
            started = node_event(self.site.nodes[i].name, now_ns, "agent_started", message=why)
            messages.append(record_message(started, f"/agents/{started.node}"))
        for i in self.plant.machines.left:
            self.placement.changed.discard(i)
            last = replace(self._inventories.pop(i), time_ns=now_ns, devices=(), allocations=(), schedulable=False)
            self._epochs[i] += 1
            messages.append(_inventory_message(replace(last, epoch=self._epochs[i])))
            why = "machine reclaimed" if i in self.plant.machines.away else "machine returned"
            stopped = node_event(last.node, now_ns, "agent_stopped", message=why)
            messages.append(record_message(stopped, f"/agents/{stopped.node}"))
        return messages

    def _boot(self, dark: set[int], now_ns: int) -> list[Message]:
        """Messages of agents on nodes that have power again."""
        messages: list[Message] = []
        back, self._dark = sorted(self._dark - dark), dark
        for i in [i for i in back if self.plant.machines.present[i]]:
            name, (agent_epoch, _) = self.site.nodes[i].name, self._boots[i]
            self._boots[i] = agent_epoch + 1, 0
            self._boot_ids[i] = record_id("boot", self._boot_ids[i], now_ns)
            started = node_event(name, now_ns, "agent_started", message="node booted")
            messages.append(record_message(started, f"/agents/{name}"))
            messages += [_inventory_message(inventory) for inventory in self._announce([i], now_ns)]
        return messages

    def _delivered(self, messages: list[Message], dark: set[int], cut: set[int]) -> list[Message]:
        """Messages that arrive: none from agents without power; those from unreachable agents are delayed."""
        off, away = ({self.site.nodes[i].name.encode() for i in nodes} for nodes in (dark, cut))
        found = [m for name in sorted(self._spooled.keys() - away) for m in self._spooled.pop(name)]
        for message in messages:
            if message.topic not in OF_AGENTS or message.key not in off | away:
                found.append(message)
            elif message.key not in off:
                self._spooled.setdefault(message.key, []).append(message)
        return found

    def _signal_messages(self, now_ns: int) -> list[Message]:
        return [record_message(s, f"/zones/{s.zone}") for s in make_signals(self.config, self.start_ns, now_ns)]


def _inventory_message(inventory: Inventory) -> Message:
    return record_message(inventory, f"/agents/{inventory.node}")
