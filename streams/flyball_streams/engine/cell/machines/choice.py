"""Chooses the machines that serve an inference workload, and keeps a choice until it is due again.

The workload lane proposes replicas, and the work of a replica on each offer. This module adds availability, prices and
the risk of losing spot. Workloads come in order of priority: machines chosen for one are not available to the next.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from flyball_contracts.config import Offer
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Alternatives, AnyDecision, MachineChoice, Pool, Proposal, WorkloadSpec
from flyball_models.sizing.choice import Mix, Need, Option, Price, choose
from flyball_streams.engine.cell.actions.scale import scale
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.machines.availability import OfferAvailability
from flyball_streams.engine.cell.machines.explanation import Priced, alone, explained, portions, without_room
from flyball_streams.engine.cell.machines.memory import Choices, Chosen
from flyball_streams.engine.cell.machines.mix import order
from flyball_streams.engine.cell.machines.quotes import quote
from flyball_streams.engine.offers import HeldByOffer, Holdings, is_chosen_for, mean_work, part_of
from flyball_streams.engine.parameters import ChoiceParameters

PAY_BACK_S = 3_600.0
"""Assumed life of a choice: the cost of moving is spread over it."""
ROUNDING = 1e-9
PATIENCE = 1.5
"""Ordered machines count as not delivered after this many times their stated start time."""
MOST_AT_ONCE = 20
"""Workloads to choose for in one tick; each takes some ten milliseconds. Others wait for a later tick."""
NOT_TRIED = frozenset({"refused", "superseded", "planned"})
"""Final statuses of orders that are no fault of an offer."""
CHEAPER = "what runs can be had cheaper"


class Options(NamedTuple):
    """Options of a workload: offers, what it holds on other machines, and offers without room."""

    priced: list[Priced]
    fixed: list[Option]
    full: list[Priced]


class Choice:
    """Chooses for the inference workloads of one cell in one tick; ``chosen`` has the new choices."""

    def __init__(self, cycle: Cycle, holdings: Holdings, pools: Mapping[str, Pool]) -> None:
        self.cycle = cycle
        self.config: ChoiceParameters = cycle.config.choice
        self.holdings = holdings
        self.offers: Mapping[str, Offer] = holdings.offers
        self.memory: Choices = cycle.memory.choices
        self.room = OfferAvailability(cycle, holdings, pools)
        self.chosen: list[MachineChoice] = []
        self._left = MOST_AT_ONCE
        if self.offers:
            names = {spec.workload for spec in cycle.directory.workloads(cycle.cell)}
            self.memory.keep(names, set(self.offers), cycle.now_ns, round(self.config.retry_s * NS_PER_S))

    def choose(self, p: Proposal, spec: WorkloadSpec) -> Iterator[AnyDecision]:
        """Choose if it is due or the proposal requires it; repeat a choice that is not in place yet.

        If no offer serves, the workload is scaled on the machines it has. Mode ``advise`` makes no decision.
        """
        there, name, held = p.alternatives, spec.workload, self.holdings.held(spec.workload)
        if there is None or p.replicas is None or not self.offers:
            return
        acts = self.config.mode == "act"
        if acts:
            self._watch(name, held)
        replicas = self._needed(p, there) if is_chosen_for(spec) else 0
        if replicas <= 0:
            self.memory.drop(name)
            if acts:
                yield from scale(self.cycle, p, spec)
        elif acts:
            chosen, covered = self._acting(p, spec, there, held, replicas)
            if not covered:
                yield from scale(self.cycle, p, spec)
            elif chosen is None:
                self.cycle.lacks(name, 0)
            else:
                yield from order(self.cycle, self.room, spec, chosen)
        elif self._is_due(name):
            self._chosen(p, spec, there, held, replicas, fresh=True)

    def _needed(self, p: Proposal, there: Alternatives) -> int:
        """Number of replicas to choose for: the need, with the sizer's limits on its change.

        While the sizer keeps the current number, this is the number of the last choice, or the need if that is more:
        more replicas may run, in case spot machines are lost.
        """
        running = p.observed_replicas or 0
        last = self.memory.needs.get(p.workload, running)
        wanted = running if p.replicas is None else p.replicas
        if wanted > running or (wanted == 0 < running):
            return wanted
        if there.needed is None:
            return last
        slowly = last if wanted == running else math.ceil((1.0 - self.cycle.config.sizing.max_scale_in) * last)
        return max(there.needed, slowly)

    def _acting(
        self, p: Proposal, spec: WorkloadSpec, there: Alternatives, held: HeldByOffer, replicas: int
    ) -> tuple[Chosen | None, bool]:
        """The choice for a workload in mode ``act``, and whether it takes the place of plain scaling."""
        name, memory = spec.workload, self.memory
        pending, due = memory.pending.get(name), self._is_due(name)
        coming = self._coming(held, pending)
        if p.replicas == p.observed_replicas and not due:
            return pending, True
        if not due and memory.kept.get(name) == (replicas, coming):
            return pending, True  # the last choice found these counts sufficient
        counts = HeldByOffer(coming, held.other)
        chosen = self._chosen(p, spec, there, counts, replicas, fresh=due and pending is None)
        if chosen is None:
            return pending, name in memory.kept
        if pending is not None:  # spot was not there when more was needed; the others go on coming
            self._give_up(pending, held, {n for n, count in held.counts.items() if self._may_fail(n, count)})
        memory.pending[name] = chosen
        return chosen, True

    def _coming(self, held: HeldByOffer, pending: Chosen | None) -> dict[str, int]:
        """Replicas by offer that run or are sure to come; ordered spot is not sure."""
        mix = {} if pending is None else pending.mix
        return {name: n if self._may_fail(name, n) else max(n, mix.get(name, 0)) for name, n in held.counts.items()}

    def _may_fail(self, name: str, held: int) -> bool:
        """Whether an order on an offer may never be delivered: spot, if none is held or some was lost recently."""
        return self.offers[name].market == "spot" and (not held or name in self.memory.short)

    def _chosen(
        self, p: Proposal, spec: WorkloadSpec, there: Alternatives, held: HeldByOffer, replicas: int, *, fresh: bool
    ) -> Chosen | None:
        """Choose for a number of replicas, in the proposal's count; ``None``: no offer serves, or nothing changes."""
        name, now, memory = spec.workload, self.cycle.now_ns, self.memory
        memory.kept.pop(name, None)
        if self._left <= 0:
            return None
        self._left -= 1
        if fresh:
            memory.looked[name] = now
        options = self._options(spec, there, held)
        if options is None:
            return None
        need = Need(
            replicas * there.reference,
            self._attainment(spec),
            self.config.survive,
            max(1, spec.min_replicas),
            max(1, spec.max_replicas),
        )
        every = [one.option for one in options.priced] + options.fixed
        mix = self._cheapest(every, need, fresh=fresh, may_shrink=name not in memory.pending)
        if mix is None:
            return None
        memory.kept[name] = replicas, dict(held.counts)
        memory.needs[name] = replicas
        counts = {one.offer.name: n for one, n in zip(options.priced, mix.replicas, strict=False)}
        counts |= {o.name: o.held for o in options.fixed if o.name}
        if counts == {n: held.counts.get(n, 0) for n in counts}:
            return None
        chosen = self._made(p, spec, options, counts, mix, held, need)
        self._tell(spec, chosen)
        return chosen

    def _made(
        self,
        p: Proposal,
        spec: WorkloadSpec,
        options: Options,
        counts: Mapping[str, int],
        mix: Mix,
        held: HeldByOffer,
        need: Need,
    ) -> Chosen:
        """The choice with its explanation, and the time that its machines may take."""
        now, wants = self.cycle.now_ns, p.replicas != p.observed_replicas
        rival = alone(options.priced, need.work_per_s, need.most_replicas)
        costs, numbers = explained(options.priced, counts, mix, rival)
        room = without_room([*options.priced, *options.full], counts)
        started = [one for one in options.priced if counts[one.offer.name] > held.counts.get(one.offer.name, 0)]
        wait_s = PATIENCE * max((one.option.cold_start_s for one in started), default=0.0)
        wait_ns = round(max(wait_s, self.cycle.config.decision_ttl_s) * NS_PER_S)
        return Chosen(
            replicas=sum(counts.values()) + held.other,
            mix=dict(counts),
            portions=portions(spec, options.priced, counts, self.holdings.held(spec.workload).counts),
            reason="; ".join(part for part in (costs, room, p.reason if wants else CHEAPER) if part),
            evidence=(*(p.evidence if wants else ()), *numbers),
            since_ns=now,
            wait_ns=wait_ns,
            until_ns=now + wait_ns,
            proposal=p.id,
        )

    def _tell(self, spec: WorkloadSpec, chosen: Chosen) -> None:
        self.chosen.append(
            MachineChoice(
                id=record_id("MachineChoice", self.cycle.cell, spec.workload, chosen.since_ns),
                subject=spec.workload,
                cell=self.cycle.cell,
                time_ns=chosen.since_ns,
                replicas=chosen.replicas,
                mix=chosen.portions,
                reason=chosen.reason,
                evidence=chosen.evidence,
                proposal=chosen.proposal,
            )
        )

    def _cheapest(self, options: Sequence[Option], need: Need, *, fresh: bool, may_shrink: bool) -> Mix | None:
        """The mix with the smallest change or, when due, the cheapest one if it saves enough.

        The smallest change only adds to what is held or, if that is enough, only removes from it. A shortage is urgent,
        and the availability of spot is unknown if none is held. So on-demand covers it first, and spot may replace that
        later, when a machine that is not delivered costs nothing (the fallback of SkyServe's SpotHedge, EuroSys 2025).
        """
        price = Price(self.config.usd_per_carbon_kg, PAY_BACK_S)
        enough = sum(o.held * o.work_per_s for o in options) >= need.work_per_s * (1.0 - ROUNDING)
        if enough and may_shrink:
            stay = choose([o._replace(most=max(o.least, o.held)) for o in options], need, price)
        else:
            more = [o._replace(least=o.held, most=max(o.most, o.held)) for o in options]
            sure = [o._replace(most=o.held) if o.pool and not o.held else o for o in more]
            stay = choose(sure, need, price) or choose(more, need, price)
        if stay is not None and not fresh:
            return stay
        free = choose(options, need, price)
        if stay is None or free is None:
            return stay or free
        running = stay.objective - stay.moving
        return free if stay.objective - free.objective > self.config.least_saving * running else stay

    def _options(self, spec: WorkloadSpec, there: Alternatives, held: HeldByOffer) -> Options | None:
        """Options of a workload now, ``None`` if no offer is known to serve it."""
        work, options = there.work, Options([], [], [])
        for name, offer in self.offers.items():
            here = held.counts.get(name, 0)
            quoted = quote(self.cycle.directory, self.cycle.cell, offer, spec, self.cycle.now_ns)
            if name not in work or quoted.usd_per_hour is None or quoted.loss_per_hour is None:
                if here:  # its work or cost is unknown, so it stays
                    options.fixed.append(Option(name, work.get(name, 0.0), 0.0, most=here, least=here, held=here))
                continue
            machines = part_of(spec, offer).machines
            most = here if name in self.memory.short else max(here, self.room.most(spec, offer))
            option = Option(
                name=name,
                work_per_s=work[name],
                usd_per_hour=quoted.usd_per_hour * machines,
                power_w=offer.power_w * machines,
                pool=_pool(offer),
                loss_per_hour=self.memory.losses.per_hour(name, quoted.loss_per_hour),
                cold_start_s=offer.start_s + there.cold_start_s,
                most=most,
                held=here,
                carbon_g_per_kwh=quoted.carbon_g_per_kwh or 0.0,
            )
            (options.priced if most > 0 else options.full).append(Priced(offer, quoted, option))
        if held.other:
            options.fixed.append(Option("", 0.0, 0.0, most=held.other, least=held.other, held=held.other))
        if not options.priced:
            return None
        mean = mean_work(work, held.counts)
        return options._replace(fixed=[o._replace(work_per_s=o.work_per_s or mean) for o in options.fixed])

    def _watch(self, workload: str, held: HeldByOffer) -> None:
        """Note which offers lost delivered machines, and which did not deliver in time."""
        memory, cycle = self.memory, self.cycle
        now, pending, seen = cycle.now_ns, memory.pending.get(workload), memory.seen.get(workload)
        until = now + round(self.config.retry_s * NS_PER_S)
        for name, before in ({} if seen is None else seen).items():
            kept = before if pending is None else min(before, pending.mix.get(name, 0))
            if kept and name in self.offers and self.offers[name].market == "spot":
                gone = max(0, kept - held.counts[name])
                memory.losses.saw(name, now, cycle.period_ns, gone / kept)
                if gone:
                    memory.short[name] = until
        if seen != held.counts:
            memory.seen[workload] = dict(held.counts)
        if pending is None:
            return
        status = self._answer(workload, pending)
        if held.counts == {name: pending.mix.get(name, 0) for name in held.counts}:
            del memory.pending[workload]
        elif status in NOT_TRIED:
            memory.drop(workload)
        elif status == "failed" or not pending.since_ns <= now < pending.until_ns:
            if pending.decision:
                self._give_up(pending, held, set(self.offers))
            memory.drop(workload)

    def _answer(self, workload: str, pending: Chosen) -> str:
        """The newest status of a choice's order; empty before its first report."""
        made = self.cycle.memory.orders.get(workload)
        return made.report.status if made is not None and made.id == pending.decision else ""

    def _give_up(self, pending: Chosen, held: HeldByOffer, of: set[str]) -> None:
        """Do not order from undelivered offers for a while."""
        until = self.cycle.now_ns + round(self.config.retry_s * NS_PER_S)
        late = [name for name, n in pending.mix.items() if name in of and held.counts.get(name, 0) < n]
        self.memory.short |= dict.fromkeys(late, until)

    def _is_due(self, workload: str) -> bool:
        """Whether a new choice is due for a workload; new workloads take turns."""
        every, now = round(self.config.every_s * NS_PER_S), self.cycle.now_ns
        last = self.memory.looked.get(workload)
        if last is None or last > now:
            last = self.memory.looked[workload] = now - crc32(workload.encode()) % every
        return now - last >= every

    def _attainment(self, spec: WorkloadSpec) -> float:
        """Share of work that must be in time; without an objective, it follows from the cost of late work."""
        if spec.objective is not None:
            return spec.objective.attainment
        late = self.cycle.config.sizing.late_cost
        return late / (1.0 + late)


def _pool(offer: Offer) -> str:
    """Key of the machines that are reclaimed together with an offer's; empty if they are not reclaimed."""
    if offer.market != "spot":
        return ""
    return f"{offer.gpu_model} in {offer.signals or offer.zone}"
