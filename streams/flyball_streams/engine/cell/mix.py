"""Machines that a workload is to run on."""

from collections.abc import Iterator, Mapping, Sequence

from flyball_contracts.records import Effect, Portion, Proposal, Scale, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import bounded
from flyball_streams.engine.cell.backoff import Attempt
from flyball_streams.engine.cell.cycle import Cycle, cited
from flyball_streams.engine.cell.rate_limit import is_short


def choose(cycle: Cycle, p: Proposal, spec: WorkloadSpec) -> Iterator[Scale]:
    """Order a mix of machines that are got for it, whatever room there is among those that are here."""
    name, running, last = p.workload, cycle.running(p.workload), cycle.believed(p.workload)
    wanted = running if p.replicas is None else p.replicas
    counts = {part.offer: part.replicas for part in p.mix}
    if bounded(spec, wanted) != wanted or (last is not None and last.mix == counts):
        return
    cycle.memory.backoff.reached(name, "choose", _named({part.offer: part.replicas_before for part in p.mix}))
    if cycle.resting(name, wanted - running):
        cycle.unmet |= wanted > running
        return
    made = Attempt("choose", _named(counts), running, wanted)
    waited = cycle.admit(name, made, urgent=cycle.wakes(name, wanted), emergency=is_short(running, wanted))
    if waited is None:
        return
    cycle.memory.preempted.pop(name, None)
    # Machines are got for it: what is here already is only kept for it as far as it goes.
    places = [place for _ in range(wanted - running) if (place := cycle.placement.place(spec)) is not None]
    verb = "out" if wanted > running else "in"
    change = f"Move the {running} replicas of" if wanted == running else "Scale"
    count = "" if wanted == running else f" {verb} from {running} to {wanted}"
    yield Scale(
        id=cycle.order(spec, made, places, [], counts),
        **cycle.common(name, f"{change} {name}{count}: {p.reason}", p.confidence, cited(p), waited),
        expected=effect_of(p.mix) if p.mix else cycle.effect(spec, wanted - running),
        replicas=wanted,
        replicas_before=running,
        mix=p.mix,
    )


def effect_of(mix: Sequence[Portion]) -> Effect:
    """What a mix changes in an hour, as far as it is known of all of its parts."""

    def change(name: str) -> float | None:
        values = [getattr(part, name) for part in mix]
        if None in values:
            return None
        return float(sum(v * (part.replicas - part.replicas_before) for v, part in zip(values, mix, strict=True)))

    return Effect(
        cost_usd_per_hour=change("usd_per_hour"),
        carbon_g_per_hour=change("carbon_g_per_hour"),
        power_w=change("power_w"),
        gpus=change("gpus"),
    )


def _named(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {offer}" for offer, n in sorted(counts.items()) if n)
