"""Orders a chosen mix of machines, and reserves room for it on its offers."""

from collections.abc import Iterator, Mapping, Sequence

from flyball_contracts.records import Effect, Evidence, Portion, Scale, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import bounded
from flyball_streams.engine.cell.backoff import Attempt
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.machines.availability import OfferAvailability
from flyball_streams.engine.cell.machines.memory import Chosen
from flyball_streams.engine.cell.placement import Place
from flyball_streams.engine.cell.pools.wants import note

CONFIDENCE = 0.7


def order(cycle: Cycle, room: OfferAvailability, spec: WorkloadSpec, chosen: Chosen) -> Iterator[Scale]:
    """Order a mix of machines, once per choice; pools without enough machines are to buy them."""
    name, running, last = spec.workload, cycle.running(spec.workload), cycle.believed(spec.workload)
    wanted, counts = chosen.replicas, chosen.mix
    if bounded(spec, wanted) != wanted:
        return
    if last is not None and last.mix == counts:
        _buy(cycle, room, spec, chosen)
        return
    before = _named({part.offer: part.replicas_before for part in chosen.portions})
    cycle.reached(name, "choose", before)
    if cycle.resting(name, wanted - running) or cycle.is_rising(name, running, wanted):
        cycle.unmet |= wanted > running
        return
    made = Attempt("choose", _named(counts), running, wanted)
    waited = cycle.admit(name, made, urgent=cycle.wakes(name, wanted), emergency=cycle.is_down(name, wanted))
    if waited is None:
        return
    cycle.memory.preempted.pop(name, None)
    places = _taken(cycle, room, spec, chosen)
    identity = cycle.order(spec, made, places, [], counts)
    cycle.keep(name, places)
    cycle.memory.choices.ordered(name, identity, cycle.now_ns)
    verb = "out" if wanted > running else "in"
    change = f"Move the {running} replicas of" if wanted == running else "Scale"
    count = "" if wanted == running else f" {verb} from {running} to {wanted}"
    cited = Evidence(name="proposal", value=1.0, record=chosen.proposal)
    yield Scale(
        id=identity,
        **cycle.common(name, f"{change} {name}{count}: {chosen.reason}", CONFIDENCE, (*chosen.evidence, cited), waited),
        expected=effect_of(chosen.portions) if chosen.portions else cycle.effect(spec, wanted - running),
        replicas=wanted,
        replicas_before=running,
        mix=chosen.portions,
    )
    _buy(cycle, room, spec, chosen)


def effect_of(mix: Sequence[Portion]) -> Effect:
    """Change per hour by a mix; ``None`` for a value that is unknown for one of its portions."""

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


def _taken(cycle: Cycle, room: OfferAvailability, spec: WorkloadSpec, chosen: Chosen) -> list[Place]:
    """Reserve machines of each offer for the new replicas, as far as available."""
    places: list[Place] = []
    for name, count in _to_come(room, spec, chosen).items():
        nodes = frozenset(room.holdings.nodes(name))
        found = (cycle.placement.place(spec, nodes) for _ in range(count))
        places += [place for place in found if place is not None]
    return places


def _buy(cycle: Cycle, room: OfferAvailability, spec: WorkloadSpec, chosen: Chosen) -> None:
    """Note replicas without room, by the pool that is to buy machines for them."""
    by_pool = {name: n for name, n in _to_come(room, spec, chosen).items() if name in room.pools}
    note(cycle.memory.wants, spec.workload, sum(by_pool.values()), chosen.proposal, cycle.now_ns, by_pool)


def _to_come(room: OfferAvailability, spec: WorkloadSpec, chosen: Chosen) -> dict[str, int]:
    """New replicas by offer that have no reserved room yet."""
    held, offers = room.holdings.held(spec.workload).counts, room.holdings.offers
    left = {name: n - held[name] - room.placed(spec.workload, offers[name]) for name, n in chosen.mix.items()}
    return {name: n for name, n in left.items() if n > 0}


def _named(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {offer}" for offer, n in sorted(counts.items()) if n)
