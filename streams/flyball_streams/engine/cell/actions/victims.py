"""Chooses which less important replicas to preempt: the cheapest set that makes room."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.actions.limits import SLACK, accepts, gang_of, per_replica
from flyball_streams.engine.cell.placement import Place, Placement, Room, whole
from flyball_streams.engine.fleet_index import FleetIndex, Replica

MOST_NOTED = 10_000
MOST_SPARED = 64
"""Most victims for which a second pass looks for needless ones; beyond that it is not worth its time."""
Cost: TypeAlias = tuple[int, float, int]
"""Highest priority among those that stop, GPU time of checkpoints that is lost, GPUs that are freed."""


class Bundle(NamedTuple):
    """Replicas of one victim that stop together, and the GPUs that this frees, by model and node."""

    victim: WorkloadSpec
    names: tuple[str, ...]
    replicas: tuple[Replica, ...]
    gains: dict[Room, int]

    @property
    def lost(self) -> float:
        """GPU seconds that checkpoints take."""
        return self.victim.checkpoint_s * per_replica(self.victim) * len(self.names)


class Stoppable(NamedTuple):
    """An interruptible workload whose replicas may stop for a more important one, ``spare`` of them at most.

    ``touched``: a replica of it is moved in this tick. ``due``: a decision about it need not wait.
    """

    victim: WorkloadSpec
    bundles: list[Bundle]
    spare: int
    touched: bool
    due: bool


class Holders:
    """Interruptible work of a cell in bundles, as long as the inventories stay the same."""

    def __init__(self, directory: FleetIndex, cell: str, placement: Placement) -> None:
        self.placement = placement
        self.directory = directory
        found = [spec for spec in directory.workloads(cell) if spec.interruptible]
        self.interruptible = sorted(
            found, key=lambda s: (s.priority, s.checkpoint_s * s.gpus_per_replica * s.gang_size, s.workload)
        )
        """Least important first, then the least GPU time lost to checkpoints."""
        self._bundles: dict[tuple[str, frozenset[str]], tuple[list[Bundle], int]] = {}

    def bundles(self, victim: WorkloadSpec, stopping: frozenset[str]) -> tuple[list[Bundle], int]:
        """Replicas of a workload that are not ``stopping``, by gangs, and their number."""
        found = self._bundles.get((victim.workload, stopping))
        if found is None:
            if len(self._bundles) > MOST_NOTED:
                self._bundles = {}
            made = list(self._made(victim, stopping))
            found = self._bundles[victim.workload, stopping] = made, sum(len(bundle.names) for bundle in made)
        return found

    def _made(self, victim: WorkloadSpec, stopping: frozenset[str]) -> Iterator[Bundle]:
        replicas: dict[str, list[Replica]] = {}
        for replica in self.directory.replicas(victim.workload):
            if replica.name not in stopping:
                replicas.setdefault(replica.name, []).append(replica)
        names, gang = list(replicas), gang_of(victim)
        for i in range(0, len(names), gang):
            part = tuple(names[i : i + gang])
            members = tuple(r for name in part for r in replicas[name])
            yield Bundle(victim, part, members, self.placement.gains(members))


class Search:
    """Makes room for one replica after the other, in the placement itself, which can be rolled back.

    ``candidates`` are cheapest first. ``spare`` is how many replicas of each workload may stop, ``coming`` the room
    reserved for pending replicas, which do not start if their workload is preempted, and ``chosen`` the bundles that
    stop.
    """

    def __init__(
        self,
        spec: WorkloadSpec,
        placement: Placement,
        candidates: Sequence[Bundle],
        spare: Counter[str],
        coming: Mapping[str, Sequence[Place]],
    ) -> None:
        self.spec = spec
        self.placement = placement
        self.chosen: list[Bundle] = []
        self.spare = spare
        self.coming = coming
        self._candidates = candidates
        self._used: set[int] = set()
        self._by_room: dict[Room, list[int]] = defaultdict(list)
        models = {model for model in placement.total if accepts(spec, model)}
        for i, bundle in enumerate(candidates):
            for room in bundle.gains:
                if room[0] in models:
                    self._by_room[room].append(i)
        self._gpus = max(1, whole(per_replica(spec)))
        self._heap: list[tuple[Cost, Room]] | None = None

    def unit(self, replicas: int) -> bool:
        """Place ``replicas`` that run together, and stop the bundles in their way; if they do not fit, stop nothing."""
        mark, chosen, used, spare = self.placement.mark(), len(self.chosen), set(self._used), Counter(self.spare)
        while replicas:
            placed = self.placement.place(self.spec) is not None
            if not placed and not self._make_room():
                self.placement.rollback(mark)
                del self.chosen[chosen:]
                self._used, self.spare, self._heap = used, spare, None
                return False
            replicas -= placed
        return True

    def spared(self, mark: int, replicas: int) -> list[Place]:
        """Keep victims that later ones have made needless; return all places, counted from ``mark``."""
        if len(self.chosen) <= MOST_SPARED:
            for bundle in self.chosen[::-1]:
                fewer = [b for b in self.chosen if b is not bundle]
                if self._all_fit(mark, fewer, replicas):
                    self.chosen = fewer
        return self._again(mark, self.chosen, replicas)

    def _all_fit(self, mark: int, chosen: Sequence[Bundle], replicas: int) -> bool:
        if per_replica(self.spec) < 1 - SLACK or self.placement.spans(self.spec):
            return len(self._again(mark, chosen, replicas)) == replicas
        self._stop_all(mark, chosen)
        return self.placement.fitting(self.spec) >= replicas  # placing each of them takes far longer

    def _again(self, mark: int, chosen: Sequence[Bundle], replicas: int) -> list[Place]:
        self._stop_all(mark, chosen)
        found = (self.placement.place(self.spec) for _ in range(replicas))
        return [place for place in found if place is not None]

    def _stop_all(self, mark: int, chosen: Sequence[Bundle]) -> None:
        self.placement.rollback(mark)
        self.chosen, kept = [], self.chosen
        for bundle in chosen:
            self._stop(bundle)
        self.chosen = kept

    def _make_room(self) -> bool:
        """Stop the cheapest set that lets one more replica be placed."""
        if self.placement.spans(self.spec):
            return self._make_span()
        if self._heap is None:
            costs = ((self._cost(room), room) for room in self._by_room)
            self._heap = [(cost, room) for cost, room in costs if cost is not None]
            heapq.heapify(self._heap)
        while self._heap:
            cost, room = heapq.heappop(self._heap)
            now = self._cost(room)
            if now is None:
                continue
            heapq.heappush(self._heap, (now, room))
            if now <= cost:
                self._choose(self._set(room))
                return self.placement.free[room] >= self._gpus
        return False

    def _make_span(self) -> bool:
        """Stop the cheapest bundles until a replica that needs several nodes can be placed."""
        mark, tried = self.placement.mark(), list[int]()
        spare = Counter(self.spare)
        for i, bundle in enumerate(self._candidates):
            helps = any(accepts(self.spec, model) for model, _ in bundle.gains)
            if i in self._used or not helps or spare[bundle.victim.workload] < len(bundle.names):
                continue
            spare[bundle.victim.workload] -= len(bundle.names)
            tried.append(i)
            self.placement.stop(bundle.replicas)
            if self._fits():
                break
        else:
            self.placement.rollback(mark)
            return False
        for i in reversed(tried[:-1]):  # a large one at the end may have made others needless
            fewer = [j for j in tried if j != i]
            self.placement.rollback(mark)
            for j in fewer:
                self.placement.stop(self._candidates[j].replicas)
            if self._fits():
                tried = fewer
        self.placement.rollback(mark)
        self._choose(tried)
        return True

    def _fits(self) -> bool:
        mark = self.placement.mark()
        fits = self.placement.place(self.spec) is not None
        self.placement.rollback(mark)
        return fits

    def _choose(self, bundles: Iterable[int]) -> None:
        for i in bundles:
            bundle = self._candidates[i]
            self._used.add(i)
            self.spare[bundle.victim.workload] -= len(bundle.names)
            self._stop(bundle)

    def _stop(self, bundle: Bundle) -> None:
        """Stop a bundle in the placement; pending replicas of its workload do not start then, and free their room."""
        if all(bundle.victim is not other.victim for other in self.chosen):
            for place in self.coming.get(bundle.victim.workload, ()):
                self.placement.give(place)
        self.chosen.append(bundle)
        self.placement.stop(bundle.replicas)

    def _cost(self, room: Room) -> Cost | None:
        """Cost of making room there, ``None`` if that is impossible."""
        found = [self._candidates[i] for i in self._set(room)]
        if not found:
            return None
        freed = sum(sum(b.gains.values()) for b in found)
        return max(b.victim.priority for b in found), sum(b.lost for b in found), freed

    def _set(self, room: Room) -> list[int]:
        """Fewest of the cheapest bundles that make room there; empty if they do not."""
        lacking = self._gpus - self.placement.free[room]
        found: list[int] = []
        taken: dict[str, int] = {}
        for i in self._by_room[room]:
            if lacking <= 0:
                break
            bundle = self._candidates[i]
            name = bundle.victim.workload
            most = taken.get(name, 0) + len(bundle.names)
            if i not in self._used and most <= self.spare[name]:
                taken[name] = most
                found.append(i)
                lacking -= bundle.gains[room]
        if lacking > 0:
            return []
        for i in reversed(found[:]):
            if lacking + self._candidates[i].gains[room] <= 0:
                found.remove(i)
                lacking += self._candidates[i].gains[room]
        return found
