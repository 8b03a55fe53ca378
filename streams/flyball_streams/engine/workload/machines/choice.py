"""Which machines serve an inference workload: when it is chosen anew, and what then is in force.

Need is counted in replicas as the sizer knows them: what one sustains was learned on those that run or, where its owner
says so, on the least of the GPUs that serve it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from flyball_contracts.config import Offer
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Evidence, Proposal, Tick, WorkloadSpec
from flyball_models.sizing.choice import Mix, Need, Option, Price, choose
from flyball_streams.engine.known import Known
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import ChoiceParameters, Parameters
from flyball_streams.engine.workload.machines.explanation import Chosen, Priced, alone, explained, portions
from flyball_streams.engine.workload.machines.losses import Losses
from flyball_streams.engine.workload.machines.offers import Book, Held, part_of
from flyball_streams.engine.workload.sizing.sizer import Job, Want

PAY_BACK_S = 3_600.0
"""So long a choice is believed to last: the cost of moving is spread over it."""
ROUNDING = 1e-9
PATIENCE = 1.5
"""Machines that were asked for are waited for so many times as long as they are said to take."""
MOST_AT_ONCE = 20
"""Workloads that are chosen for in a tick; it takes some ten milliseconds for each. Others wait, or do without."""
CHEAPER = "what runs can be had cheaper"


class Result(NamedTuple):
    """What is proposed, and the workloads whose sizing it stands for."""

    proposals: list[Proposal]
    taken: set[str]


UNCHOSEN = Result([], set())


class Options(NamedTuple):
    """What a workload can run on: offers, and what it holds that stays as it is; and the work of a replica on each."""

    priced: list[Priced]
    fixed: list[Option]
    speeds: Mapping[str, float]


class Choice:
    """Chooses for the inference workloads of one cell in one partition; without ``offers`` nobody asks it."""

    def __init__(self, cell: str, config: Parameters, directory: Known) -> None:
        self.cell = cell
        self.worker = config
        self.config: ChoiceParameters = config.choice
        self.book = Book(cell, () if self.config.mode == "off" else self.config.offers, directory)
        self.offers: Mapping[str, Offer] = self.book.offers
        self.acts = self.config.mode == "act"
        self.pending: dict[str, Chosen] = {}
        self.looked: dict[str, int] = {}
        self.seen: dict[str, dict[str, int]] = {}
        self.needs: dict[str, int] = {}
        self.short: dict[str, int] = {}
        self.losses = Losses()
        self._kept: dict[str, tuple[int, dict[str, int]]] = {}
        self._left = MOST_AT_ONCE

    def step(self, tick: Tick, jobs: Sequence[Job], wants: Sequence[Want | None], needs: Mapping[str, float]) -> Result:
        """Choose where it is time to, or where a proposal asks for it.

        ``wants`` are those of the jobs, ``needs`` the replicas that workloads need, NaN where unknown. A choice that is
        not there yet is said again, as a proposal is.
        """
        result = Result([], set())
        now, self._left = tick.end_ns, MOST_AT_ONCE
        self.short = {name: until for name, until in self.short.items() if until > now}
        for job, want in zip(jobs, wants, strict=True):
            spec, need = job.spec, needs.get(job.spec.workload, math.nan)
            if spec.gang_size > 1 or spec.gpus_per_replica <= 0 or spec.cell != self.cell:
                continue
            held = self.book.held(spec.workload)
            if self.acts:
                self._watch(spec.workload, held, tick)
            replicas = self._needed(job, want, need)
            if replicas <= 0:
                self.pending.pop(spec.workload, None)
                continue
            due = self._is_due(spec.workload, now) and not tick.missing
            if self.acts:
                chosen, covered = self._acting(tick, job, want, held, replicas, due)
                if covered:
                    result.taken.add(spec.workload)
            else:
                chosen = self._chosen(tick, job, held, replicas, CHEAPER, (), anew=True) if due else None
            if chosen is not None:
                result.proposals.append(self._proposal(spec, held, chosen))
        return result

    def keep(self, names: set[str]) -> None:
        """Forget all other workloads."""
        if not self.offers:
            return
        for known in (self.pending, self.looked, self.seen, self.needs, self._kept):
            for name in known.keys() - names:
                del known[name]

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "pending": {name: pack_struct(chosen) for name, chosen in self.pending.items()},
            "looked": self.looked,
            "seen": self.seen,
            "needs": self.needs,
            "short": self.short,
            "losses": self.losses.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take on the state of a snapshot; what was chosen of offers that are no more is forgotten."""
        pending = {name: unpack_struct(raw, Chosen) for name, raw in state["pending"].items()}
        self.pending = {name: chosen for name, chosen in pending.items() if chosen.mix.keys() <= self.offers.keys()}
        self.looked, self.short, self._kept = dict(state["looked"]), dict(state["short"]), {}
        self.needs = dict(state["needs"])
        self.losses.load(state["losses"])
        self.seen = {name: dict(counts) for name, counts in state["seen"].items()}

    def _needed(self, job: Job, want: Want | None, need: float) -> int:
        """Replicas to choose for: what is needed, with the sizer's bounds on how fast that may change.

        Where it is content with what runs, they are those that were chosen for last: more may run, to be lost.
        """
        running = job.demand.replicas
        last = self.needs.get(job.spec.workload, running)
        if want is None:
            return max(math.ceil(need), last) if need < running else last
        if want.replicas > running or want.replicas == 0:
            return want.replicas
        slowly = math.ceil((1.0 - self.worker.sizing.max_scale_in) * last)
        return max(math.ceil(need), slowly) if need < running else last

    def _acting(
        self, tick: Tick, job: Job, want: Want | None, held: Held, replicas: int, due: bool
    ) -> tuple[Chosen | None, bool]:
        """What to say of a workload that is acted on, and whether that stands for its proposal."""
        name, pending = job.spec.workload, self.pending.get(job.spec.workload)
        asks = (replicas, self._coming(held, pending))
        if want is None and not due:
            return pending, True
        if not due and self._kept.get(name) == asks:
            return pending, True  # it was found a moment ago that this serves
        reason = CHEAPER if want is None else want.reason
        evidence = () if want is None else want.evidence
        counts = Held(asks[1], held.other)
        chosen = self._chosen(tick, job, counts, replicas, reason, evidence, anew=due and pending is None)
        if chosen is None:
            return pending, name in self._kept
        if pending is not None:  # spot was not there when more was needed; the others go on coming
            doubtful = {n for n, there in held.counts.items() if self._may_fail(n, there)}
            self._give_up(pending, held, tick.end_ns, doubtful)
        self.pending[name] = chosen
        return chosen, True

    def _coming(self, held: Held, pending: Chosen | None) -> dict[str, int]:
        """Replicas by offer that are there or sure to come; spot that was asked for may never."""
        mix = {} if pending is None else pending.mix
        return {name: n if self._may_fail(name, n) else max(n, mix.get(name, 0)) for name, n in held.counts.items()}

    def _may_fail(self, name: str, held: int) -> bool:
        """Whether what is asked of an offer may never come: spot, where none is held or some was lost of late."""
        return self.offers[name].market == "spot" and (not held or name in self.short)

    def _chosen(
        self,
        tick: Tick,
        job: Job,
        held: Held,
        replicas: int,
        reason: str,
        evidence: tuple[Evidence, ...],
        *,
        anew: bool,
    ) -> Chosen | None:
        """Choose for so many replicas as the sizer counts them; ``None``: nothing serves, or nothing is to change."""
        name, now, spec = job.spec.workload, tick.end_ns, job.spec
        self._kept.pop(name, None)
        if self._left <= 0:
            return None
        self._left -= 1
        if anew:
            self.looked[name] = now
        options = self._options(job, held, now)
        if options is None:
            return None
        every = [p.option for p in options.priced] + options.fixed
        need = Need(
            replicas * self._reference(job, options),
            self._attainment(spec),
            self.config.survive,
            max(1, spec.min_replicas),
            max(1, spec.max_replicas),
        )
        mix = self._cheapest(every, need, anew=anew, may_shrink=name not in self.pending)
        if mix is None:
            return None
        self._kept[name] = (replicas, dict(held.counts))
        self.needs[name] = replicas
        counts = {p.offer.name: n for p, n in zip(options.priced, mix.replicas, strict=False)}
        counts |= {o.name: o.held for o in options.fixed if o.name}
        if counts == {n: held.counts.get(n, 0) for n in counts}:
            return None
        rival = alone(options.priced, need.work_per_s, need.most_replicas)
        costs, numbers = explained(options.priced, counts, mix, rival)
        started = [p for p in options.priced if counts[p.offer.name] > held.counts.get(p.offer.name, 0)]
        wait_s = PATIENCE * max((p.option.cold_start_s for p in started), default=0.0)
        return Chosen(
            replicas=sum(counts.values()) + held.other,
            mix=counts,
            portions=portions(spec, options.priced, counts, self.book.held(name).counts),
            reason=f"{costs}; {reason}",
            evidence=(*evidence, *numbers),
            since_ns=now,
            until_ns=now + round(max(wait_s, self.worker.decision_ttl_s) * NS_PER_S),
        )

    def _cheapest(self, options: Sequence[Option], need: Need, *, anew: bool, may_shrink: bool) -> Mix | None:
        """Mix that changes least, or, where it is time, the cheapest one if that saves enough.

        Least change is only to add to what there is, or, where that is enough, only to take from it. What is lacking is
        lacking now, and nobody knows whether spot is to be had where none is held: there on-demand comes first, and
        spot may take over from it later, when a machine that does not come costs nothing (the fallback of SkyServe's
        SpotHedge, EuroSys 2025).
        """
        price = Price(self.config.usd_per_carbon_kg, PAY_BACK_S)
        enough = sum(o.held * o.work_per_s for o in options) >= need.work_per_s * (1.0 - ROUNDING)
        if enough and may_shrink:
            stay = choose([o._replace(most=max(o.least, o.held)) for o in options], need, price)
        else:
            more = [o._replace(least=o.held, most=max(o.most, o.held)) for o in options]
            sure = [o._replace(most=o.held) if o.pool and not o.held else o for o in more]
            stay = choose(sure, need, price) or choose(more, need, price)
        if stay is not None and not anew:
            return stay
        free = choose(options, need, price)
        if stay is None or free is None:
            return stay or free
        running = stay.objective - stay.moving
        return free if stay.objective - free.objective > self.config.least_saving * running else stay

    def _options(self, job: Job, held: Held, now: int) -> Options | None:
        """What a workload can run on now, ``None`` where nothing is known to serve it."""
        spec, speeds = job.spec, self.book.speeds(job.spec)
        if not speeds:
            return None
        priced: list[Priced] = []
        fixed: list[Option] = []
        for name, offer in self.offers.items():
            here = held.counts.get(name, 0)
            quote, part = self.book.quote(offer, spec, now), part_of(spec, offer)
            if name not in speeds or quote.usd_per_hour is None or quote.loss_per_hour is None:
                if here:  # nobody knows whether it could be had cheaper: it stays
                    fixed.append(Option(name, speeds.get(name, 0.0), 0.0, most=here, least=here, held=here))
                continue
            promised = self._promised(spec.workload, name)
            most = here if name in self.short else max(here, self.book.most(spec, offer, promised))
            option = Option(
                name=name,
                work_per_s=speeds[name],
                usd_per_hour=quote.usd_per_hour * part.machines,
                power_w=offer.power_w * part.machines,
                pool=_pool(offer),
                loss_per_hour=self.losses.per_hour(name, quote.loss_per_hour),
                cold_start_s=offer.start_s + job.cold_start_s,
                most=most,
                held=here,
                carbon_g_per_kwh=quote.carbon_g_per_kwh or 0.0,
            )
            if most > 0:
                priced.append(Priced(offer, quote, option))
        if held.other:
            fixed.append(Option("", 0.0, 0.0, most=held.other, least=held.other, held=held.other))
        mean = _mean(speeds, held.counts)
        return Options(priced, [o._replace(work_per_s=o.work_per_s or mean) for o in fixed], speeds) if priced else None

    def _promised(self, workload: str, offer: str) -> float:
        """GPUs of an offer that others were promised by this lane and do not hold yet."""
        total = 0.0
        for name, chosen in self.pending.items():
            spec = self.book.directory.spec(name)
            if name != workload and spec is not None:
                held = self.book.held(name).counts.get(offer, 0)
                total += max(0, chosen.mix.get(offer, 0) - held) * spec.gpus_per_replica
        return total

    def _watch(self, workload: str, held: Held, tick: Tick) -> None:
        """Note which offers lost what they had delivered, and which did not deliver in time."""
        now, pending, seen = tick.end_ns, self.pending.get(workload), self.seen.get(workload)
        until = now + round(self.config.retry_s * NS_PER_S)
        for name, before in ({} if seen is None else seen).items():
            kept = before if pending is None else min(before, pending.mix.get(name, 0))
            if kept and name in self.offers and self.offers[name].market == "spot":
                gone = max(0, kept - held.counts[name])
                self.losses.saw(name, tick, gone / kept)
                if gone:
                    self.short[name] = until
        if seen != held.counts:
            self.seen[workload] = dict(held.counts)
        if pending is None:
            return
        if held.counts == {name: pending.mix.get(name, 0) for name in held.counts}:
            del self.pending[workload]
        elif not pending.since_ns <= now < pending.until_ns:
            self._give_up(pending, held, now, set(self.offers))
            del self.pending[workload]

    def _give_up(self, pending: Chosen, held: Held, now: int, of: set[str]) -> None:
        """Ask no more for a while of those offers that have not delivered."""
        until = now + round(self.config.retry_s * NS_PER_S)
        self.short |= {name: until for name, n in pending.mix.items() if name in of and held.counts.get(name, 0) < n}

    def _is_due(self, workload: str, now: int) -> bool:
        """Whether a workload may be chosen for anew; those that are new take turns."""
        every = round(self.config.every_s * NS_PER_S)
        last = self.looked.get(workload)
        if last is None or last > now:
            last = self.looked[workload] = now - crc32(workload.encode()) % every
        return now - last >= every

    def _reference(self, job: Job, options: Options) -> float:
        """Work of a replica as the sizer counts it: by its owner that of the least, else the mean of what runs."""
        if job.source == "owner":
            return min(options.speeds.values())
        return _mean(options.speeds, self.book.held(job.spec.workload).counts)

    def _attainment(self, spec: WorkloadSpec) -> float:
        """Share of work that is to be in time; of a workload without an objective, where late work costs so much."""
        if spec.objective is not None:
            return spec.objective.attainment
        late = self.worker.sizing.late_cost
        return late / (1.0 + late)

    def _proposal(self, spec: WorkloadSpec, held: Held, chosen: Chosen) -> Proposal:
        return Proposal(
            id=record_id("Proposal", "choose", self.cell, spec.workload, chosen.since_ns, held.replicas),
            action="choose",
            workload=spec.workload,
            reason=chosen.reason,
            replicas=chosen.replicas,
            observed_replicas=held.replicas,
            mix=chosen.portions,
            confidence=0.7,
            evidence=chosen.evidence,
        )


def _pool(offer: Offer) -> str:
    """What is reclaimed together with an offer's machines; empty for what is not reclaimed."""
    if offer.market != "spot":
        return ""
    return f"{offer.gpu_model} in {offer.signals or offer.zone}"


def _mean(speeds: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Mean work of the replicas of which it is known, the least there is where none runs."""
    known = [(n, speeds[name]) for name, n in counts.items() if n and name in speeds]
    total = sum(n for n, _ in known)
    return sum(n * work for n, work in known) / total if total else min(speeds.values())
