"""Which wishes of a tick become decisions: one cell's capacity, priorities and memory of what it ordered."""

import math
from collections.abc import Iterator

import msgspec

from flyball_contracts.config import WorkerConfig
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import (
    AnyDecision,
    Effect,
    Evidence,
    Migrate,
    Outcome,
    Preempt,
    Proposal,
    Scale,
    Tick,
    WorkloadSpec,
)
from flyball_streams.engine.cell.capacity import (
    Free,
    Room,
    accepts,
    best_room,
    free_rooms,
    gpu_price,
    main_model,
    model_of,
    replicas_of,
)
from flyball_streams.engine.directory import Directory

POLICY = "flyball-spine-1"
LIVES_TICKS = 3
"""A decision lives at least so many ticks, however long they are."""


class Order(msgspec.Struct):
    """What was decided for a workload and is believed until it expires: ``replicas``, by decision ``id``."""

    id: str
    replicas: int
    before: int
    expires_ns: int
    decided_ns: int


class Preempted(msgspec.Struct):
    """A workload that gave way, to be brought back when there is room for a while."""

    replicas: int
    since_ns: int


class Memory(msgspec.Struct):
    """What an arbiter remembers between ticks."""

    orders: dict[str, Order] = {}
    moves: dict[str, Order] = {}
    unhealthy: dict[str, int] = {}
    preempted: dict[str, Preempted] = {}


class Arbiter:
    """Decides for one cell, one closed tick at a time."""

    def __init__(self, cell: str, config: WorkerConfig, directory: Directory) -> None:
        self.cell = cell
        self.config = config
        self.directory = directory
        self.memory = Memory()
        self._rooms: list[Room] = []
        self._free = Free([])
        self._period_ns = 0

    def heed(self, outcome: Outcome) -> None:
        """Stop believing in an order that was refused or failed; it may be decided anew after its expiry."""
        if outcome.status not in ("refused", "failed", "superseded"):
            return
        for order in self.memory.orders.values():
            if order.id == outcome.decision:
                order.replicas = order.before

    def decide(self, tick: Tick, proposals: list[Proposal]) -> Iterator[AnyDecision]:
        """Decisions of one tick in a fixed order: migrations, then pauses, then scaling by priority."""
        now, self._period_ns = tick.end_ns, tick.period_ns
        self._forget(now)
        for p in proposals:
            if p.wish == "migrate":
                self.memory.unhealthy[p.device] = self._expiry(now)
        self._rooms = free_rooms(self.directory, self.cell, set(self.memory.unhealthy))
        self._free = Free(self._rooms)
        self._claim()
        wishes = sorted(proposals, key=lambda p: (-self._priority(p.workload), p.workload, p.replica, p.id))
        for p in wishes:
            if p.wish == "migrate":
                yield from self._migrate(p, now)
        for p in wishes:
            if p.wish == "pause":
                yield from self._pause(p, now)
        wanted = [p for p in wishes if p.wish == "scale"]
        for p in wanted:
            yield from self._scale(p, now)
        if not any((p.replicas or 0) > self._running(p.workload) for p in wanted):
            yield from self._bring_back(tick)

    def _migrate(self, p: Proposal, now: int) -> Iterator[Migrate]:
        spec = self.directory.spec(p.workload)
        key = f"{p.workload}/{p.replica}/{p.device}"
        if spec is None or key in self.memory.moves:
            return
        held = [r for r in self.directory.replicas(p.workload) if r.name == p.replica and r.node == p.node]
        devices = len(held[0].devices) if held else 1
        home = self.directory.inventories.get(p.node)
        room = best_room(self._rooms, spec, devices, p.node, home.zone if home else "")
        where = f"node {room.node} has {len(room.devices)} free healthy GPUs" if room else "no node has room yet"
        identity = record_id("Migrate", self.cell, key, now)
        expires = self._expiry(now)
        self.memory.moves[key] = Order(identity, 0, 0, expires, now)
        yield Migrate(
            id=identity,
            target=self._target(p.workload),
            cell=self.cell,
            workload=p.workload,
            time_ns=now,
            expires_ns=expires,
            reason=f"Move replica {p.replica} of {p.workload} away: {p.reason}; {where}.",
            confidence=p.confidence,
            policy=POLICY,
            evidence=(*p.evidence, Evidence(name="proposal", value=1.0, record=p.id)),
            expected=Effect(gpus=0.0, cost_usd_per_hour=0.0),
            replica=p.replica,
            from_node=p.node,
            from_device=p.device,
            to_node=room.node if room else "",
        )

    def _pause(self, p: Proposal, now: int) -> Iterator[Preempt]:
        spec = self.directory.spec(p.workload)
        running = self._running(p.workload)
        if spec is None or not spec.interruptible or running == 0:
            return
        yield self._preempt(
            spec, running, 0, now, f"Pause {p.workload}: {p.reason}.", p.confidence,
            (*p.evidence, Evidence(name="proposal", value=1.0, record=p.id)), until_ns=p.until_ns,
        )  # fmt: skip

    def _scale(self, p: Proposal, now: int) -> Iterator[AnyDecision]:
        spec = self.directory.spec(p.workload)
        if spec is None or p.replicas is None:
            return
        running = self._running(p.workload)
        wanted = max(spec.min_replicas, min(p.replicas, spec.max_replicas))
        last = self.memory.orders.get(p.workload)
        if wanted == running:
            return
        if last is not None:
            turned = (wanted - running) * (last.replicas - last.before) < 0
            rest_s = self.config.sizing.hold_s if turned else self.config.sizing.interval_s
            if now - last.decided_ns < rest_s * NS_PER_S:
                return
        per_replica = spec.gpus_per_replica
        need = (wanted - running) * per_replica
        short_of = need - self._free.usable(spec)
        if short_of > 0:
            yield from self._make_room(spec, short_of, now)
        granted = wanted
        if (usable := self._free.usable(spec)) < need and per_replica > 0:
            granted = running + max(0, math.floor(usable / per_replica + 1e-9))
            if spec.gang_size > 1 and granted - running < spec.gang_size:
                granted = running
        if granted == running:
            return
        self._free.take(spec, (granted - running) * per_replica)
        short = "" if granted == wanted else f"; room for {granted} of {wanted} only"
        verb = "out" if granted > running else "in"
        reason = f"Scale {p.workload} {verb} from {running} to {granted}: {p.reason}{short}."
        yield self._order(spec, running, granted, now, reason, p.confidence, self._cited(p))

    def _make_room(self, spec: WorkloadSpec, gpus: float, now: int) -> Iterator[Preempt]:
        """Preempt the cheapest interruptible workloads of lower priority until ``gpus`` more are free for ``spec``.

        Only replicas on GPU models that ``spec`` accepts help it.
        """
        for victim in sorted(self.directory.workloads(self.cell), key=_cost_of_preemption):
            running, per_replica = self._running(victim.workload), victim.gpus_per_replica
            spare = running - victim.min_replicas
            if gpus <= 0 or not victim.interruptible or victim.priority >= spec.priority or spare <= 0:
                continue
            helpful = [
                r.name for r in self.directory.replicas(victim.workload) if accepts(spec, model_of(self.directory, r))
            ]
            take = min(spare, len(helpful), math.ceil(gpus / per_replica)) if per_replica > 0 else 0
            if victim.gang_size > 1 and take:
                take = spare  # a gang runs whole or not at all
            if not take:
                continue
            reason = (
                f"Preempt {take} of {running} replicas of {victim.workload} (priority {victim.priority}): "
                f"{spec.workload} (priority {spec.priority}) needs {gpus:.3g} more GPUs than are free."
            )
            evidence = (
                Evidence(name="gpus.free", value=self._free.usable(spec), unit="{gpu}"),
                Evidence(name="gpus.short", value=gpus, unit="{gpu}"),
                Evidence(name="checkpoint", value=victim.checkpoint_s, unit="s"),
            )
            self.memory.preempted[victim.workload] = Preempted(running, now)
            yield self._preempt(
                victim, running, running - take, now, reason, 0.8, evidence,
                beneficiary=spec.workload, victims=tuple(helpful[:take]),
            )  # fmt: skip
            gpus -= take * per_replica

    def _bring_back(self, tick: Tick) -> Iterator[Scale]:
        """Return what was preempted once nobody more important has asked for its room for the hold time."""
        hold_ns = round(self.config.sizing.hold_s * NS_PER_S)
        for name in sorted(self.memory.preempted, key=lambda n: (-self._priority(n), n)):
            was, spec = self.memory.preempted[name], self.directory.spec(name)
            running = self._running(name)
            if spec is None or running >= was.replicas:
                del self.memory.preempted[name]
                continue
            need = (was.replicas - running) * spec.gpus_per_replica
            usable = self._free.usable(spec)
            if tick.end_ns - was.since_ns < hold_ns or need > usable:
                continue
            self._free.take(spec, need)
            del self.memory.preempted[name]
            reason = f"Scale {name} out from {running} to {was.replicas}: it was preempted and there is room again."
            evidence = (Evidence(name="gpus.free", value=usable, unit="{gpu}"),)
            yield self._order(spec, running, was.replicas, tick.end_ns, reason, 0.8, evidence)

    def _order(
        self,
        spec: WorkloadSpec,
        before: int,
        after: int,
        now: int,
        reason: str,
        confidence: float,
        evidence: tuple[Evidence, ...],
    ) -> Scale:
        identity = record_id("Scale", self.cell, spec.workload, now, after)
        expires = self._expiry(now)
        self.memory.orders[spec.workload] = Order(identity, after, before, expires, now)
        return Scale(
            id=identity,
            target=self._target(spec.workload),
            cell=self.cell,
            workload=spec.workload,
            time_ns=now,
            expires_ns=expires,
            reason=reason,
            confidence=confidence,
            policy=POLICY,
            evidence=evidence,
            expected=self._effect(spec, after - before, now),
            replicas=after,
            replicas_before=before,
        )

    def _preempt(
        self,
        spec: WorkloadSpec,
        before: int,
        after: int,
        now: int,
        reason: str,
        confidence: float,
        evidence: tuple[Evidence, ...],
        *,
        until_ns: int | None = None,
        beneficiary: str = "",
        victims: tuple[str, ...] = (),
    ) -> Preempt:
        identity = record_id("Preempt", self.cell, spec.workload, now, after)
        expires = self._expiry(now)
        self.memory.orders[spec.workload] = Order(identity, after, before, expires, now)
        self._free.give(main_model(self.directory, spec.workload), (before - after) * spec.gpus_per_replica)
        return Preempt(
            id=identity,
            target=self._target(spec.workload),
            cell=self.cell,
            workload=spec.workload,
            time_ns=now,
            expires_ns=expires,
            reason=reason,
            confidence=confidence,
            policy=POLICY,
            evidence=evidence,
            expected=self._effect(spec, after - before, now),
            replicas=after,
            replicas_before=before,
            until_ns=until_ns,
            checkpoint=spec.checkpoint_s > 0,
            beneficiary=beneficiary,
            victims=victims,
        )

    def _effect(self, spec: WorkloadSpec, replicas: int, now: int) -> Effect:
        gpus = replicas * spec.gpus_per_replica
        price = gpu_price(self.directory.nodes(self.cell))
        power = None if spec.power_w_per_replica is None else replicas * spec.power_w_per_replica
        zone = self.directory.zone_of(spec.workload, self.cell)
        signal = self.directory.signals.get((zone, "carbon_intensity"))
        carbon = None if signal is None else signal.at(now)
        return Effect(
            gpus=gpus,
            cost_usd_per_hour=None if price is None else price * gpus,
            power_w=power,
            carbon_g_per_hour=None if power is None or carbon is None else power / 1000.0 * carbon,
        )

    def _running(self, workload: str) -> int:
        """Replicas that run, or that were ordered and are believed to be on their way."""
        order = self.memory.orders.get(workload)
        if order is not None:
            return order.replicas
        return replicas_of(self.directory, workload)

    def _claim(self) -> None:
        """Set aside the GPUs that open orders will still take, and count those that they will still free."""
        for name, order in sorted(self.memory.orders.items()):
            spec = self.directory.spec(name)
            if spec is None:
                continue
            gpus = (order.replicas - replicas_of(self.directory, name)) * spec.gpus_per_replica
            if gpus > 0:
                self._free.take(spec, gpus)
            elif gpus < 0:
                self._free.give(main_model(self.directory, name), -gpus)

    def _forget(self, now: int) -> None:
        self.memory.orders = {n: o for n, o in self.memory.orders.items() if o.expires_ns > now}
        self.memory.moves = {n: o for n, o in self.memory.moves.items() if o.expires_ns > now}
        self.memory.unhealthy = {d: t for d, t in self.memory.unhealthy.items() if t > now}

    def _priority(self, workload: str) -> int:
        spec = self.directory.spec(workload)
        return spec.priority if spec is not None else -(2**31)

    def _expiry(self, now: int) -> int:
        return now + max(round(self.config.decision_ttl_s * NS_PER_S), LIVES_TICKS * self._period_ns)

    def _target(self, workload: str) -> str:
        return f"{self.cell}/{workload}"

    def _cited(self, p: Proposal) -> tuple[Evidence, ...]:
        return (*p.evidence, Evidence(name="proposal", value=1.0, record=p.id))


def _cost_of_preemption(spec: WorkloadSpec) -> tuple[int, float, str]:
    """Order of victims: least important, then least GPU time lost to checkpoints, then by name."""
    return spec.priority, spec.checkpoint_s * spec.gpus_per_replica * spec.gang_size, spec.workload
