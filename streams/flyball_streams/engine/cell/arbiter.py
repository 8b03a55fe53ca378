"""Which wishes of a tick become decisions: one cell's capacity, priorities and memory of what it ordered."""

from collections.abc import Generator, Iterator, Mapping

from flyball_contracts.config import WorkerConfig
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import (
    AnyDecision,
    Effect,
    Evidence,
    Migrate,
    Outcome,
    Portion,
    Preempt,
    Proposal,
    Scale,
    Tick,
    WorkloadSpec,
)
from flyball_streams.engine.cell.capacity import (
    Capacity,
    bounded,
    per_replica,
    reachable,
)
from flyball_streams.engine.cell.chosen import counts_of, effect_of
from flyball_streams.engine.cell.memory import Memory, Move, Order, Preempted, outstanding
from flyball_streams.engine.cell.victims import Bundle, candidates, choose
from flyball_streams.engine.directory import Directory

POLICY = "flyball-spine-1"
LIVES_TICKS = 3
"""A decision lives at least so many ticks, however long they are."""
QUARANTINE_S = 600.0
QUARANTINE_TICKS = 60
"""Nothing is placed on an unhealthy device for the longer of these after the last word about it."""


class Arbiter:
    """Decides for one cell, one closed tick at a time.

    What it orders is believed until it expires, fails, or is seen in the inventories, so that the next tick neither
    orders it again nor gives the same GPUs to somebody else.
    """

    def __init__(self, cell: str, config: WorkerConfig, directory: Directory) -> None:
        self.cell = cell
        self.config = config
        self.directory = directory
        self.memory = Memory()
        self._capacity = Capacity(directory, cell, ())
        self._known: tuple[int, list[str]] = (-1, [])
        self._period_ns = 0
        self._now = 0
        self._unmet = False

    def heed(self, outcome: Outcome) -> None:
        """Stop believing in a decision that was refused or failed."""
        if outcome.status in ("refused", "failed", "superseded"):
            self.memory.heed(outcome.decision)

    def decide(self, tick: Tick, proposals: list[Proposal]) -> Iterator[AnyDecision]:
        """Decisions of one tick in a fixed order: migrations, then pauses, then scaling by priority."""
        self._now, self._period_ns, self._unmet = tick.end_ns, tick.period_ns, False
        sizing = self.config.sizing
        self.memory.forget(self._now, round(max(sizing.hold_s, sizing.interval_s) * NS_PER_S), self.directory)
        if not proposals and not self.memory.preempted:
            return
        for p in proposals:
            if p.wish == "migrate":
                self.memory.unhealthy[p.device] = self._quarantine()
        self._look()
        wishes = sorted(proposals, key=lambda p: (-self._priority(p.workload), p.workload, p.replica, p.id))
        for p in wishes:
            spec = self._spec(p.workload)
            if spec is not None and p.wish == "migrate":
                yield from self._migrate(p, spec)
        for p in wishes:
            spec = self._spec(p.workload)
            if spec is not None and p.wish == "pause":
                yield from self._pause(p, spec)
        for p in wishes:
            spec = self._spec(p.workload)
            if spec is not None and p.wish == "scale" and p.replicas is not None:
                yield from self._scale(p, spec, bounded(spec, p.replicas))
            elif spec is not None and p.wish == "choose" and self.config.choice.mode == "act":
                yield from self._choose(p, spec)
        for p in wishes:
            spec = self._spec(p.workload)
            if spec is not None and p.wish == "resize" and self.config.rightsizing.mode == "act":
                yield from self._resize(p, spec)
        if not self._unmet:
            yield from self._bring_back()

    def _look(self) -> None:
        """See what is free, less what open orders and moves will still take, plus what they will still free."""
        known = self.directory.version, sorted(self.memory.unhealthy)
        if known == self._known:
            self._capacity.reset()
        else:
            self._capacity, self._known = Capacity(self.directory, self.cell, self.memory.unhealthy), known
        promised: list[tuple[WorkloadSpec, Mapping[str, float]]] = []
        for name in sorted(self.memory.orders):
            spec, order = self._spec(name), self.memory.believed(name, self._now)
            if spec is None or order is None:
                continue
            promised.append((spec, self._outstanding(order, spec)))
            if order.victims:
                stopping = (r for r in self.directory.replicas(name) if r.name in order.victims)
                self._capacity.give(self._capacity.freed_by_part(name, tuple(sorted(order.victims)), stopping))
        self._capacity.promise(promised)
        for move in self.memory.moves.values():
            there = {r.node for r in self.directory.replicas(move.workload) if r.name == move.replica}
            if there and move.node not in there:
                self._capacity.reserve(move.node, move.model, move.devices)

    def _outstanding(self, order: Order, spec: WorkloadSpec) -> Mapping[str, float]:
        """GPUs by model that an order has not taken yet; the same as long as the directory is."""
        known, key = self._capacity.outstanding, (order.id, order.replicas)
        left = known.get(key)
        if left is None:
            left = known[key] = outstanding(order, spec.workload, per_replica(spec), self.directory)
        return left

    def _migrate(self, p: Proposal, spec: WorkloadSpec) -> Iterator[Migrate]:
        key = f"{p.workload}/{p.replica}"
        held = [r for r in self.directory.replicas(p.workload) if r.name == p.replica and r.node == p.node]
        if not held or key in self.memory.moves:
            return
        devices = len(held[0].devices)
        home = self.directory.inventories.get(p.node)
        room = self._capacity.best_room(spec, devices, p.node, home.zone if home else "")
        where = f"node {room.node} has {room.devices} free healthy GPUs" if room else "no node has room yet"
        node, model = (room.node, room.model) if room else ("", "")
        self._capacity.reserve(node, model, devices)
        identity = record_id("Migrate", self.cell, key, p.device, self._now)
        expires = self._expiry()
        self.memory.moves[key] = Move(identity, p.workload, p.replica, node, model, devices, self._now, expires)
        yield Migrate(
            id=identity,
            target=self._target(p.workload),
            cell=self.cell,
            workload=p.workload,
            time_ns=self._now,
            expires_ns=expires,
            reason=f"Move replica {p.replica} of {p.workload} away: {p.reason}; {where}.",
            confidence=p.confidence,
            policy=POLICY,
            evidence=self._cited(p),
            expected=Effect(gpus=0.0, cost_usd_per_hour=0.0),
            replica=p.replica,
            from_node=p.node,
            from_device=p.device,
            to_node=node,
        )

    def _pause(self, p: Proposal, spec: WorkloadSpec) -> Iterator[Preempt]:
        running, least = self._running(p.workload), bounded(spec, 0)
        if not spec.interruptible or running <= least:
            return
        self.memory.preempted.pop(p.workload, None)  # it rests of its own will
        replicas = self.directory.replicas(p.workload)
        names = [] if least else sorted({r.name for r in replicas})
        order = self.memory.believed(p.workload, self._now)
        already = set(order.victims) if order is not None else set[str]()
        self._capacity.give(self._capacity.freed_by(r for r in replicas if r.name in names and r.name not in already))
        reason = f"Pause {p.workload}: {p.reason}."
        yield self._preempt(
            spec, running, least, reason, p.confidence, self._cited(p), until_ns=p.until_ns, stopping=names
        )

    def _scale(self, p: Proposal, spec: WorkloadSpec, wanted: int) -> Iterator[AnyDecision]:
        running = self._running(p.workload)
        observed = running if p.observed_replicas is None else p.observed_replicas
        if (wanted - running) * ((p.replicas or 0) - observed) < 0:
            return  # made on another number of replicas than there is: to obey would do the opposite
        if wanted == running:
            return
        if self._resting(p.workload, wanted - running):
            self._unmet |= wanted > running
            return
        if wanted > running:
            granted = reachable(spec, running, wanted, self._capacity.usable(spec))
            if granted < wanted:
                granted = yield from self._make_room(spec, running, wanted, granted)
            self._unmet |= granted < wanted
            short = "" if granted == wanted else f"; room for {granted} of {wanted} only"
            verb = "out"
        else:
            granted, short, verb = wanted, "", "in"
        if granted == running:
            return
        self.memory.preempted.pop(p.workload, None)  # its own wish counts from now on
        reason = f"Scale {p.workload} {verb} from {running} to {granted}: {p.reason}{short}."
        yield self._order(spec, running, granted, reason, p.confidence, self._cited(p))

    def _choose(self, p: Proposal, spec: WorkloadSpec) -> Iterator[Scale]:
        """Order a mix of machines that are got for it, whatever room there is among those that are here."""
        running, last = self._running(p.workload), self.memory.believed(p.workload, self._now)
        wanted = running if p.replicas is None else p.replicas
        if bounded(spec, wanted) != wanted or (last is not None and last.mix == counts_of(p.mix)):
            return
        if self._resting(p.workload, wanted - running):
            self._unmet |= wanted > running
            return
        self.memory.preempted.pop(p.workload, None)
        verb = "out" if wanted > running else "in"
        change = f"Move the {running} replicas of" if wanted == running else "Scale"
        count = "" if wanted == running else f" {verb} from {running} to {wanted}"
        reason = f"{change} {p.workload}{count}: {p.reason}."
        yield self._order(spec, running, wanted, reason, p.confidence, self._cited(p), p.mix)

    def _resize(self, p: Proposal, spec: WorkloadSpec) -> Iterator[Scale]:
        """Change what each replica asks for, rarely; the number of replicas is the one that is believed."""
        running, last = self._running(p.workload), self.memory.resized.get(p.workload)
        rest_ns = round(self.config.rightsizing.every_s * NS_PER_S)
        if p.resources is None or not running or (last is not None and 0 <= self._now - last < rest_ns):
            return
        self.memory.resized[p.workload] = self._now
        saved = -(p.expected_saving or 0.0) * running
        price = self._capacity.gpu_price
        yield Scale(
            id=record_id("Scale", self.cell, spec.workload, self._now, "resources"),
            target=self._target(p.workload),
            cell=self.cell,
            workload=p.workload,
            time_ns=self._now,
            expires_ns=self._expiry(),
            reason=f"Resize {p.workload}: {p.reason}.",
            confidence=p.confidence,
            policy=POLICY,
            evidence=self._cited(p),
            expected=Effect(gpus=saved, cost_usd_per_hour=None if price is None else price * saved),
            replicas=running,
            replicas_before=running,
            resources=p.resources,
            resources_before=p.resources_before,
        )

    def _make_room(self, spec: WorkloadSpec, running: int, wanted: int, granted: int) -> Generator[Preempt, None, int]:
        """Preempt what it takes to grant more than ``granted`` replicas; how many can be granted then."""
        usable, owed = self._capacity.usable(spec), self._capacity.owed(spec)
        bundles = candidates(spec, self._capacity, self.memory, self._now)
        reach = reachable(spec, running, wanted, usable + max(0.0, sum(b.gain for b in bundles) - owed))
        if reach <= granted:
            return granted
        short = (reach - running) * per_replica(spec) - usable + owed
        by_victim: dict[str, list[Bundle]] = {}
        for bundle in choose(bundles, short):
            by_victim.setdefault(bundle.victim.workload, []).append(bundle)
        for part in by_victim.values():
            yield self._give_way(spec, part, short)
            short -= sum(b.gain for b in part)
        return reach

    def _give_way(self, spec: WorkloadSpec, part: list[Bundle], short: float) -> Preempt:
        victim = part[0].victim
        name, here = victim.workload, self.directory.held(victim.workload).replicas
        running, stopping = self._running(name), [n for b in part for n in b.names]
        after = min(here, running) - len(stopping)  # what was still to start does not start
        order = self.memory.believed(name, self._now)
        if order is not None:
            self._capacity.give(self._outstanding(order, victim))
        reason = (
            f"Preempt {running - after} of {running} replicas of {name} (priority {victim.priority}): "
            f"{spec.workload} (priority {spec.priority}) needs {short:.3g} more GPUs than are free."
        )
        evidence = (
            Evidence(name="gpus.free", value=self._capacity.usable(spec), unit="{gpu}"),
            Evidence(name="gpus.short", value=short, unit="{gpu}"),
            Evidence(name="checkpoint", value=victim.checkpoint_s, unit="s"),
        )
        before = self.memory.preempted.get(name)
        back = max(running, before.replicas if before is not None else 0)
        self.memory.preempted[name] = Preempted(back, self._now)
        for bundle in part:
            self._capacity.give(bundle.frees)
        return self._preempt(
            victim, running, after, reason, 0.8, evidence, beneficiary=spec.workload, stopping=stopping
        )

    def _bring_back(self) -> Iterator[Scale]:
        """Return what was preempted once nobody more important has asked for its room for the hold time."""
        hold_ns = round(self.config.sizing.hold_s * NS_PER_S)
        for name in sorted(self.memory.preempted, key=lambda n: (-self._priority(n), n)):
            was, spec, running = self.memory.preempted[name], self._spec(name), self._running(name)
            wanted = bounded(spec, was.replicas) if spec is not None else 0
            if spec is None or wanted <= running:
                del self.memory.preempted[name]
                continue
            usable = self._capacity.usable(spec)
            rested = self._now - was.since_ns >= hold_ns and not self._resting(name, wanted - running)
            if not rested or reachable(spec, running, wanted, usable) < wanted:
                continue
            del self.memory.preempted[name]
            reason = f"Scale {name} out from {running} to {wanted}: it was preempted and there is room again."
            evidence = (Evidence(name="gpus.free", value=usable, unit="{gpu}"),)
            yield self._order(spec, running, wanted, reason, 0.8, evidence)

    def _order(
        self,
        spec: WorkloadSpec,
        before: int,
        after: int,
        reason: str,
        confidence: float,
        evidence: tuple[Evidence, ...],
        mix: tuple[Portion, ...] = (),
    ) -> Scale:
        identity = record_id("Scale", self.cell, spec.workload, self._now, after)
        self._remember(spec, identity, before, after, [])
        self.memory.orders[spec.workload].mix = counts_of(mix)
        return Scale(
            id=identity,
            target=self._target(spec.workload),
            cell=self.cell,
            workload=spec.workload,
            time_ns=self._now,
            expires_ns=self._expiry(),
            reason=reason,
            confidence=confidence,
            policy=POLICY,
            evidence=evidence,
            expected=effect_of(mix) if mix else self._effect(spec, after - before),
            replicas=after,
            replicas_before=before,
            mix=mix,
        )

    def _preempt(
        self,
        spec: WorkloadSpec,
        before: int,
        after: int,
        reason: str,
        confidence: float,
        evidence: tuple[Evidence, ...],
        *,
        until_ns: int | None = None,
        beneficiary: str = "",
        stopping: list[str],
    ) -> Preempt:
        identity = record_id("Preempt", self.cell, spec.workload, self._now, after)
        self._remember(spec, identity, before, after, stopping)
        return Preempt(
            id=identity,
            target=self._target(spec.workload),
            cell=self.cell,
            workload=spec.workload,
            time_ns=self._now,
            expires_ns=self._expiry(),
            reason=reason,
            confidence=confidence,
            policy=POLICY,
            evidence=evidence,
            expected=self._effect(spec, after - before),
            replicas=after,
            replicas_before=before,
            until_ns=until_ns,
            checkpoint=spec.checkpoint_s > 0,
            beneficiary=beneficiary,
            victims=tuple(stopping) if beneficiary else (),
        )

    def _remember(self, spec: WorkloadSpec, identity: str, before: int, after: int, stopping: list[str]) -> None:
        """Note an order, with what it claims and what it and an open one before it stop.

        What an open order before it has not taken yet passes on to the new one; what is too much is seen at the next
        look.
        """
        name, last = spec.workload, self.memory.believed(spec.workload, self._now)
        more = (after - before) * per_replica(spec)
        claims = self._capacity.claim(spec, more) if more > 0 else {}
        stopping = stopping + ([] if last is None or after > last.replicas else last.victims)
        if last is not None:
            for model, gpus in self._outstanding(last, spec).items():
                claims[model] = claims.get(model, 0.0) + gpus
        had = dict(self.directory.held(name).gpus)
        self.memory.orders[name] = Order(
            identity, after, before, self._now, self._expiry(), claims, had, sorted(set(stopping))
        )

    def _effect(self, spec: WorkloadSpec, replicas: int) -> Effect:
        gpus = replicas * spec.gpus_per_replica
        price = self._capacity.gpu_price
        power = None if spec.power_w_per_replica is None else replicas * spec.power_w_per_replica
        zone = self.directory.zone_of(spec.workload, self.cell)
        signal = self.directory.signals.get((zone, "carbon_intensity"))
        carbon = None if signal is None else signal.at(self._now)
        return Effect(
            gpus=gpus,
            cost_usd_per_hour=None if price is None else price * gpus,
            power_w=power,
            carbon_g_per_hour=None if power is None or carbon is None else power / 1000.0 * carbon,
        )

    def _running(self, workload: str) -> int:
        """Replicas that run, or that were ordered and are believed to be on their way."""
        order = self.memory.believed(workload, self._now)
        return order.replicas if order is not None else self.directory.held(workload).replicas

    def _resting(self, workload: str, change: int) -> bool:
        """Whether the last decision about a workload is too recent for another one, or for one that turns it back.

        Replicas that are stopping for somebody else are waited for: to keep them would take back what was given.
        """
        last = self.memory.orders.get(workload)
        if last is None:
            return False
        if change > 0 and last.expires_ns > self._now:
            here = {r.name for r in self.directory.replicas(workload)}
            if not here.isdisjoint(last.victims):
                return True
        turned = change * (last.replicas - last.before) < 0
        if turned and not (last.replicas or last.victims or self.directory.held(workload).replicas):
            return False  # what was scaled to zero, and is, is woken at once: nothing answers its requests meanwhile
        rest_s = self.config.sizing.hold_s if turned else self.config.sizing.interval_s
        return self._now - last.decided_ns < rest_s * NS_PER_S

    def _spec(self, workload: str) -> WorkloadSpec | None:
        """Specification of a workload of this cell; a wish about any other is not this arbiter's to fulfil."""
        spec = self.directory.spec(workload)
        return spec if spec is not None and spec.cell == self.cell else None

    def _priority(self, workload: str) -> int:
        spec = self._spec(workload)
        return spec.priority if spec is not None else -(2**31)

    def _expiry(self) -> int:
        return self._now + max(round(self.config.decision_ttl_s * NS_PER_S), LIVES_TICKS * self._period_ns)

    def _quarantine(self) -> int:
        return self._now + max(round(QUARANTINE_S * NS_PER_S), QUARANTINE_TICKS * self._period_ns)

    def _target(self, workload: str) -> str:
        return f"{self.cell}/{workload}"

    def _cited(self, p: Proposal) -> tuple[Evidence, ...]:
        return (*p.evidence, Evidence(name="proposal", value=1.0, record=p.id))
