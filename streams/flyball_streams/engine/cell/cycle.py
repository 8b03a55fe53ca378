"""One scheduling cycle of one cell: the inputs of a tick, and what all actions share."""

from collections.abc import Hashable, Iterable, Mapping
from itertools import takewhile
from typing import Any

from flyball_contracts.ids import NS_PER_S, decision_id
from flyball_contracts.records import Effect, Evidence, Proposal, Tick, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import gang_of
from flyball_streams.engine.cell.actions.victims import Holders, Stoppable
from flyball_streams.engine.cell.backoff import Attempt, Rule, Waited
from flyball_streams.engine.cell.memory import Memory, Order, outstanding, replicas_at
from flyball_streams.engine.cell.placement import Place, Placement
from flyball_streams.engine.cell.pools.wants import note
from flyball_streams.engine.cell.rate_limit import RateLimit
from flyball_streams.engine.cell.scheduler_cache import SchedulerCache
from flyball_streams.engine.fleet_index import FleetIndex, Replica
from flyball_streams.engine.parameters import Parameters

POLICY = "flyball-cell-2"
LIVES_TICKS = 3
"""A decision is valid for at least this many ticks, however long they are."""


class Cycle:
    """A tick of a cell while it is decided.

    ``decided`` are the subjects that have a decision in this tick: each has at most one. ``rescued`` are the workloads
    of which a replica is moved off a failing device in this tick. ``unmet`` means that some workload lacks room.
    """

    def __init__(
        self, cell: str, config: Parameters, directory: FleetIndex, memory: Memory, cache: SchedulerCache, tick: Tick
    ) -> None:
        self.cell = cell
        self.config = config
        self.directory = directory
        self.memory = memory
        self.now_ns = tick.end_ns
        self.period_ns = tick.period_ns
        self.rule = Rule(config.sizing.cooldown_s, config.sizing.tolerance)
        self.rate_limit = RateLimit(
            memory.decided,
            memory.rescued,
            memory.rising,
            memory.waits,
            config.decision_interval_s,
            self.now_ns,
            tick.period_ns,
        )
        self.decided: set[str] = set()
        self.rescued: set[str] = set()
        self.unmet = False
        self._cache = cache
        self._is_refreshed = False
        self._stoppable: dict[str, Stoppable | None] = {}
        self._waiting: frozenset[tuple[str, bool, int | None]] | None = None

    def spec(self, workload: str) -> WorkloadSpec | None:
        """Specification of a workload of this cell, ``None`` for any other workload."""
        spec = self.directory.spec(workload)
        return spec if spec is not None and spec.cell == self.cell else None

    def priority(self, workload: str) -> int:
        """Priority of a workload; those of other cells come last."""
        spec = self.spec(workload)
        return spec.priority if spec is not None else -(2**31)

    def believed(self, workload: str) -> Order | None:
        """Order of a workload that is in flight."""
        return self.memory.believed(workload, self.now_ns)

    def running(self, workload: str) -> int:
        """Replicas ordered, while an order is in flight, or else those that run."""
        order = self.believed(workload)
        return order.replicas if order is not None else self.directory.held(workload).replicas

    def staying(self, workload: str) -> int:
        """Running replicas that the order in flight does not stop."""
        order = self.believed(workload)
        names = {r.name for r in self.directory.replicas(workload)}
        return len(names.difference(order.victims)) if order is not None else len(names)

    def resting(self, workload: str, change: int) -> bool:
        """Whether a workload is in cooldown for a ``change`` of its replicas; reversals have a longer one.

        A workload does not grow while replicas of it stop for another workload: that would take their room back.
        """
        last = self.memory.orders.get(workload)
        if last is None:
            return False
        if change > 0 and last.expires_ns > self.now_ns:
            here = {r.name for r in self.directory.replicas(workload)}
            if not here.isdisjoint(last.victims):
                return True
        turned = change * (last.replicas - last.before) < 0
        if turned and not (last.replicas or last.victims or self.directory.held(workload).replicas):
            return False  # a workload at zero is woken at once: nothing serves its requests meanwhile
        rest_s = self.config.sizing.reversal_cooldown_s if turned else self.config.sizing.cooldown_s
        return self.now_ns - last.decided_ns < rest_s * NS_PER_S

    def lacks(self, workload: str, replicas: int, proposal: str = "") -> None:
        """Note that ``replicas`` of a workload lack room; 0: there is room for all."""
        self.unmet |= replicas > 0
        note(self.memory.wants, workload, replicas, proposal, self.now_ns)

    def still_lacks(self, workload: str, most: int) -> None:
        """Note that a workload in cooldown wants ``most`` more replicas: those it lacked before it still lacks."""
        want = self.memory.wants.get(workload)
        if want is not None:
            note(self.memory.wants, workload, min(want.replicas, most), want.proposal, self.now_ns)

    def wakes(self, workload: str, wanted: int) -> bool:
        """Whether a workload that is wanted has no replica."""
        return wanted > 0 and not self.directory.held(workload).replicas

    def is_down(self, workload: str, wanted: int) -> bool:
        """Whether a workload that is wanted has no replica, and none is ordered."""
        return self.wakes(workload, wanted) and not self.running(workload)

    def is_rising(self, workload: str, running: int, wanted: int) -> bool:
        """Whether growth waits because more may be wanted in a moment; a workload that is down never waits."""
        if wanted <= running or self.is_down(workload, wanted):
            return False
        return self.rate_limit.is_rising(workload, wanted, self.period_ns)

    def leavable(self, spec: WorkloadSpec, running: int, replicas: int) -> int:
        """How many of ``replicas`` may stop at once: whole gangs, within what the limits of the last refusal allowed.

        All of them if no limit is known, or if the limits allow not even one gang.
        """
        allowed, gang = self.memory.backoff.allowed(spec.workload, self.now_ns), gang_of(spec)
        if allowed is None or allowed >= replicas:
            return replicas
        after = -(-(running - allowed) // gang) * gang
        return running - after if after < running else replicas

    def admit(
        self, subject: str, wanted: Attempt, *, target: str = "", urgent: bool = False, emergency: bool = False
    ) -> Waited | None:
        """The explanation of earlier attempts if a decision may be made now, ``None`` while it has to wait.

        ``target`` is the workload, if that is not the subject. An ``urgent`` decision has a shorter backoff; an
        ``emergency`` is exempt from the rate limit of its target.
        """
        if subject in self.decided or not (emergency or self.is_due(target or subject)):
            return None
        return self.memory.backoff.admit(subject, wanted, self.now_ns, self.rule, urgent=urgent)

    def is_due(self, workload: str) -> bool:
        """Whether a decision about a workload need not wait: its interval is over, and it has no rescue in this tick.

        Another decision of the same tick would not know where the rescue leaves the workload, and could stop the
        rescued replica.
        """
        return workload not in self.rescued and self.rate_limit.is_due(workload)

    def may_stop(self, workload: str) -> bool:
        """Whether a decision to stop replicas for another workload need not wait: it is due, and within the budget."""
        return self.is_due(workload) and not self.memory.backoff.is_short(workload, self.now_ns)

    def is_touched(self, workload: str) -> bool:
        """Whether a replica of a workload is moved in this tick: another decision could stop the same replica."""
        return workload in self.rescued or self.rate_limit.is_of_this_tick(workload)

    def issue(self, subject: str, made: Attempt, target: str = "", *, rescue: bool = False) -> str:
        """Note a decision; return its id."""
        identity = decision_id(self.cell, subject, self.now_ns)
        if rescue:
            self.rescued.add(target or subject)
        (self.rate_limit.note_rescue if rescue else self.rate_limit.note)(target or subject)
        self.decided.add(subject)
        self.memory.backoff.note(subject, made, identity, self.now_ns, self.rule)
        self._changed(subject, target)
        return identity

    def reached(self, subject: str, kind: str, about: str) -> None:
        """Note that the goal of attempts of a kind is reached."""
        self.memory.backoff.reached(subject, kind, about)
        self._changed(subject)

    def common(
        self, workload: str, reason: str, confidence: float, evidence: tuple[Evidence, ...], waited: Waited
    ) -> dict[str, Any]:
        """Fields that all types of decisions have."""
        return {
            "target": f"{self.cell}/{workload}",
            "cell": self.cell,
            "workload": workload,
            "time_ns": self.now_ns,
            "expires_ns": self.expiry(),
            "reason": f"{reason}; {waited.clause}." if waited.clause else f"{reason}.",
            "confidence": confidence,
            "policy": POLICY,
            "evidence": (*evidence, *waited.evidence),
        }

    def order(
        self, spec: WorkloadSpec, made: Attempt, places: list[Place], stopping: list[str], mix: Mapping[str, int]
    ) -> str:
        """Note an order, its places and the replicas it stops; return the id of the decision.

        Places and victims of an open order that are not done yet pass on to the new one; the next cycle drops any
        excess.
        """
        name, last = spec.workload, self.believed(spec.workload)
        identity = self.issue(name, made)
        if last is not None:
            stopping = stopping + ([] if made.after > last.replicas else last.victims)
            places = [*outstanding(last, name, self.directory), *places]
        here = replicas_at(name, self.directory)
        had = {node: here[node] for node in sorted({place[0].node for place in places if place}) if here[node]}
        self.memory.orders[name] = Order(
            identity, made.after, made.before, self.now_ns, self.expiry(), places, had, sorted(set(stopping)),
            dict(mix), self.directory.held(name).replicas,
        )  # fmt: skip
        return identity

    @property
    def placement(self) -> Placement:
        """Every GPU as it will be once open orders are done."""
        if not self._is_refreshed:
            self._is_refreshed = True
            self._cache.refresh(self.memory, self.now_ns)
        return self._cache.placement

    @property
    def holders(self) -> Holders:
        """Interruptible work that could be preempted."""
        return self._cache.holders

    def stoppable(self, priority: int) -> list[Stoppable]:
        """Interruptible work of a lower priority that may stop in this tick, in the order of :class:`Holders`."""
        lower = takewhile(lambda victim: victim.priority < priority, self.holders.interruptible)
        return [one for victim in lower if (one := self._known_stoppable(victim)) is not None]

    @property
    def unplaced(self) -> list[WorkloadSpec]:
        """Workloads, one for each replica, whose reserved room is not available: they are served first."""
        return self._cache.unplaced

    def reserved(self, workload: str) -> list[Place]:
        """Places reserved for replicas of a workload that are still to come."""
        return self._cache.reserved.get(workload, [])

    def keep(self, workload: str, places: list[Place]) -> None:
        """Note that places taken in this tick are kept for replicas of a workload that are still to come."""
        self._cache.reserved.setdefault(workload, []).extend(places)

    def release(self, replicas: Iterable[Replica]) -> None:
        """Free the room of these replicas; unplaced replicas get it first."""
        self.placement.stop(replicas)
        self._cache.place_pending()

    def is_infeasible(self, spec: WorkloadSpec, running: int, wanted: int) -> bool:
        """Whether no room can be made for more replicas: nothing has changed since that was tried."""
        known = self._cache.infeasible.get(spec.workload)
        return known is not None and known == self._feasibility_key(spec, running, wanted)

    def note_infeasible(self, spec: WorkloadSpec, running: int, wanted: int) -> None:
        """Remember that no room can be made for more replicas."""
        self._cache.infeasible[spec.workload] = self._feasibility_key(spec, running, wanted)

    def is_waiting(self, spec: WorkloadSpec, running: int, wanted: int, for_: frozenset[str]) -> bool:
        """Whether a workload still waits for these victims: nothing has changed since that was found."""
        known = self._cache.waiting.get(spec.workload)
        return known is not None and known == (self._feasibility_key(spec, running, wanted), for_)

    def note_waiting(self, spec: WorkloadSpec, running: int, wanted: int, for_: frozenset[str]) -> None:
        """Remember that a workload waits for these victims, about which nothing may be decided yet."""
        self._cache.waiting[spec.workload] = self._feasibility_key(spec, running, wanted), for_

    def found_before(self, spec: WorkloadSpec, mark: int, situation: object) -> int | None:
        """Replicas for which room was found with victims in the same situation, ``None`` if that is not known.

        It is known only if no decision of this tick has changed the placement up to ``mark``.
        """
        known = self._cache.found.get(spec.workload)
        if known is None or not self._cache.is_unchanged(mark):
            return None
        return known[1] if known[0] == (spec, self._cache.version, situation) else None

    def note_found(self, spec: WorkloadSpec, mark: int, situation: object, replicas: int) -> None:
        """Remember for how many replicas room was found with victims."""
        if self._cache.is_unchanged(mark):
            self._cache.found[spec.workload] = (spec, self._cache.version, situation), replicas

    def _changed(self, *subjects: str) -> None:
        """Forget what follows from the decisions about some subjects so far."""
        self._waiting = None
        for subject in subjects:
            self._stoppable.pop(subject, None)

    def _known_stoppable(self, victim: WorkloadSpec) -> Stoppable | None:
        name = victim.workload
        if name not in self._stoppable:
            self._stoppable[name] = self._find_stoppable(victim)
        return self._stoppable[name]

    def _find_stoppable(self, victim: WorkloadSpec) -> Stoppable | None:
        name, order = victim.workload, self.believed(victim.workload)
        if name in self.decided or self.memory.backoff.waits(name, "stop", self.now_ns, self.rule):
            return None
        stopping = frozenset(order.victims) if order is not None else frozenset[str]()
        bundles, running = self.holders.bundles(victim, stopping)
        if order is not None and order.replicas < running:
            return None  # some of its replicas are about to stop; which ones is unknown
        spare = self.leavable(victim, running, max(0, running - max(0, victim.min_replicas)))
        return Stoppable(victim, bundles, spare, self.is_touched(name), self.may_stop(name))

    def _feasibility_key(self, spec: WorkloadSpec, running: int, wanted: int) -> Hashable:
        if self._waiting is None:
            backoff = self.memory.backoff
            waiting = (
                (name, backoff.waits(name, "stop", self.now_ns, self.rule), backoff.allowed(name, self.now_ns))
                for name in backoff.subjects
            )
            self._waiting = frozenset(entry for entry in waiting if entry[1:] != (False, None))
        return spec, running, wanted, frozenset(self.decided), self._waiting, self._cache.version

    def effect(self, spec: WorkloadSpec, replicas: int) -> Effect:
        """Expected effect of this many more replicas, per hour."""
        gpus = replicas * spec.gpus_per_replica
        price = self.gpu_price
        power = None if spec.power_w_per_replica is None else replicas * spec.power_w_per_replica
        zone = self.directory.zone_of(spec.workload, self.cell)
        signal = self.directory.signals.get((zone, "carbon_intensity"))
        carbon = None if signal is None else signal.at(self.now_ns)
        return Effect(
            gpus=gpus,
            cost_usd_per_hour=None if price is None else price * gpus,
            power_w=power,
            carbon_g_per_hour=None if power is None or carbon is None else power / 1000.0 * carbon,
        )

    @property
    def gpu_price(self) -> float | None:
        """Mean price of one GPU in USD per hour over the nodes whose price is known."""
        return self._cache.gpu_price

    def expiry(self) -> int:
        """Time in ns after which a decision made now must not be carried out."""
        lives_ns = max(round(self.config.decision_ttl_s * NS_PER_S), LIVES_TICKS * self.period_ns)
        return self.now_ns + lives_ns


def cited(p: Proposal) -> tuple[Evidence, ...]:
    """Evidence of a proposal, and the proposal itself."""
    return (*p.evidence, Evidence(name="proposal", value=1.0, record=p.id))
