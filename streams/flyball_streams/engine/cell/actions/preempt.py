"""Makes room for more replicas: free room first, then room of less important work, which is preempted."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from flyball_contracts.records import Evidence, Preempt, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import accepts, gang_of, per_replica
from flyball_streams.engine.cell.actions.victims import Bundle, Search, Stoppable
from flyball_streams.engine.cell.backoff import Attempt
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.memory import Preempted
from flyball_streams.engine.cell.placement import Place


class Grant(NamedTuple):
    """Replicas that a workload can have, the places of the new ones, and the victims to preempt for them.

    ``free`` is how many replicas it can have without victims. The placement of this tick already contains the grant; a
    rollback to ``mark`` undoes it.
    """

    replicas: int
    places: list[Place]
    mark: int
    free: int = 0
    victims: Sequence[Bundle] = ()


def granted(
    cycle: Cycle, spec: WorkloadSpec, running: int, wanted: int, admits: Callable[[int], bool] = lambda _: True
) -> Grant:
    """Place replicas one gang after the other, in free room and then in room of victims.

    ``admits(n)`` returns whether a decision for ``n`` replicas may be made now. If not, a grant that takes victims is
    not worked out: it has neither places nor victims, and is the same in the next tick unless something changes.

    A victim is not due if something was decided about it within the interval, or if its budget is used up. The workload
    waits for such victims if more replicas have room with them, or if the due victims are more important than those
    that would be chosen among all. Replicas that have room already wait, too, if they are fewer than the rest: the
    decision about them would keep the rest waiting for longer.

    A wait ends after one interval, because decisions about one victim after the other could keep all of them from ever
    being due at once. After that, and for a workload that is down, all are victims, except workloads of which a replica
    is moved in this tick.
    """
    placement, mark = cycle.placement, cycle.placement.mark()
    if per_replica(spec) <= 0:
        return Grant(wanted, [], mark, wanted)
    if placement.tenancy.bars(spec):
        return Grant(running, [], mark, running)
    reach, places, here = running, list[Place](), cycle.staying(spec.workload)
    for more in _steps(spec, running, wanted):
        before = placement.mark()
        found: list[Place | None] = []
        for _ in range(more - max(reach, here)):  # running replicas have their room
            found.append(placement.place(spec))
            if found[-1] is None:
                break
        if None in found:
            placement.rollback(before)
            break
        reach, places = more, [*places, *(place for place in found if place is not None)]
    free, after_free = reach, placement.mark()
    if (
        reach == wanted
        or cycle.is_infeasible(spec, running, wanted)
        or any(_shared(cycle, spec, o) for o in cycle.unplaced)
    ):
        return Grant(reach, places, mark, free)
    stoppable = cycle.stoppable(spec.priority)
    hurries = cycle.is_down(spec.workload, wanted) or cycle.rate_limit.has_waited(spec.workload)
    resting = frozenset(one.victim.workload for one in stoppable if one.touched or not (hurries or one.due))
    if resting and cycle.is_waiting(spec, running, wanted, resting):
        return _waits(cycle, spec, running, mark)
    situation = running, wanted, here, free, resting, [(one.victim.workload, one.spare) for one in stoppable]
    before_search = cycle.found_before(spec, mark, situation)
    if before_search is not None and not admits(before_search):
        return Grant(before_search, [], mark, free)
    candidates, spare = [b for one in stoppable for b in one.bundles], _spare(stoppable)
    search = _search(cycle, spec, [b for b in candidates if b.victim.workload not in resting], spare)
    now = reach = _reach(search, spec, free, wanted, here)
    highest = _highest(search)
    if any(now < wanted or b.victim.priority < highest for b in candidates if b.victim.workload in resting):
        placement.rollback(after_free)
        later = _search(cycle, spec, candidates, spare)
        most = _reach(later, spec, free, wanted, here)
        placement.rollback(after_free)
        reach = max(now, most)
        if most >= now and _highest(later) < highest:
            now = free  # the due victims are more important than the later ones
        if now - running < reach - now:
            cycle.note_waiting(spec, running, wanted, resting)
            return _waits(cycle, spec, running, mark)
    if reach == free:
        cycle.note_infeasible(spec, running, wanted)
    if now == free:
        return Grant(free, places, mark, free)
    if not admits(now):
        cycle.note_found(spec, mark, situation, now)
        return Grant(now, [], mark, free)
    return Grant(now, search.spared(mark, now - max(running, here)), mark, free, search.chosen)


def _waits(cycle: Cycle, spec: WorkloadSpec, running: int, mark: int) -> Grant:
    """Grant no further replica: the workload waits for victims."""
    cycle.rate_limit.note_wait(spec.workload)
    cycle.placement.rollback(mark)
    return Grant(running, [], mark, running)


def _reach(search: Search, spec: WorkloadSpec, reach: int, wanted: int, here: int) -> int:
    """Replicas for which there is room without the victims that the search chooses; ``here`` have theirs."""
    for more in _steps(spec, reach, wanted):
        if not search.unit(more - max(reach, here)):
            break
        reach = more
    return reach


def _highest(search: Search) -> float:
    """Highest priority among the victims of a search."""
    return max((bundle.victim.priority for bundle in search.chosen), default=-math.inf)


def give_way(cycle: Cycle, spec: WorkloadSpec, grant: Grant) -> Iterator[Preempt]:
    """Preempt the victims of a grant."""
    by_victim: dict[str, list[Bundle]] = {}
    for bundle in grant.victims:
        by_victim.setdefault(bundle.victim.workload, []).append(bundle)
    for name in sorted(by_victim):
        yield _stop(cycle, spec, grant, by_victim[name])


def _stop(cycle: Cycle, spec: WorkloadSpec, grant: Grant, part: list[Bundle]) -> Preempt:
    victim = part[0].victim
    name, here = victim.workload, cycle.directory.held(victim.workload).replicas
    running, stopping = cycle.running(name), [n for b in part for n in b.names]
    after = min(here, running) - len(stopping)  # replicas still to start do not start
    more = grant.replicas - grant.free
    reason = (
        f"Preempt {running - after} of {running} replicas of {name} (priority {victim.priority}): without them "
        f"there is room for {more} more of {spec.workload} (priority {spec.priority})"
    )
    freed = sum(n for b in part for (model, _), n in b.gains.items() if accepts(spec, model))
    evidence = (
        Evidence(name="replicas.placed_without", value=float(grant.free), unit="{replica}"),
        Evidence(name="replicas.placed_with", value=float(grant.replicas), unit="{replica}"),
        Evidence(name="gpus.freed", value=float(freed), unit="{gpu}"),
        Evidence(name="gpus.per_replica", value=per_replica(spec), unit="{gpu}"),
        Evidence(name="checkpoint", value=victim.checkpoint_s, unit="s"),
    )
    before = cycle.memory.preempted.get(name)
    back = max(running, before.replicas if before is not None else 0)
    cycle.memory.preempted[name] = Preempted(back, cycle.now_ns)
    made = Attempt("stop", "", running, after)
    waited = cycle.memory.backoff.explanation(name, made, cycle.now_ns, cycle.rule)
    return Preempt(
        id=cycle.order(victim, made, [], stopping, {}),
        **cycle.common(name, reason, 0.8, evidence, waited),
        expected=cycle.effect(victim, after - running),
        replicas=after,
        replicas_before=running,
        checkpoint=victim.checkpoint_s > 0,
        beneficiary=spec.workload,
        victims=tuple(stopping),
    )


def _steps(spec: WorkloadSpec, running: int, wanted: int) -> Iterator[int]:
    """Numbers of replicas, in whole gangs, from ``running`` up to ``wanted``."""
    gang = gang_of(spec)
    return iter(range(running - running % gang + gang, wanted + 1, gang))


def _spare(stoppable: Sequence[Stoppable]) -> Counter[str]:
    """How many replicas of each workload may stop."""
    return Counter({one.victim.workload: one.spare for one in stoppable})


def _search(cycle: Cycle, spec: WorkloadSpec, candidates: Sequence[Bundle], spare: Counter[str]) -> Search:
    coming = {name: cycle.reserved(name) for name in spare}
    return Search(spec, cycle.placement, candidates, Counter(spare), coming)


def _shared(cycle: Cycle, spec: WorkloadSpec, other: WorkloadSpec) -> bool:
    """Whether two workloads accept a common GPU model: then reserved room of one precedes the other's proposal."""
    return any(accepts(spec, model) and accepts(other, model) for model in cycle.placement.total)
