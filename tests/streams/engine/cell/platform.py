"""A cell for the arbiter's tests: any nodes and workloads, and a platform that obeys, dawdles or refuses."""

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import msgspec
from tests.streams.engine.scene import CELL, START_NS, inventory, spec

from flyball_contracts.records import (
    Allocation,
    AnyDecision,
    Check,
    Migrate,
    Outcome,
    Preempt,
    Proposal,
    Scale,
    Tick,
    WorkloadSpec,
)
from flyball_streams.engine import Directory

MODELS = ("a100", "h100")
Place = tuple[str, int]
Room = tuple[str, str]


class Requested(NamedTuple):
    """One replica: GPUs, the models that it accepts, and whether it runs on several nodes."""

    gpus: int
    models: frozenset[str]
    spans: bool


class Platform:
    """What really runs, and what has been promised to whom according to the decisions alone."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.directory = Directory()
        self.model: dict[Place, str] = {}
        self.specs = [self._spec(i) for i in range(random.randint(1, 5))]
        for n in range(random.randint(1, 4)):
            for row in range(random.randint(1, 6)):
                self.model[f"node-{n}", row] = random.choice(MODELS) if n else MODELS[0]
        self.held: dict[tuple[str, str], list[Place]] = {}
        self.orders: dict[str, dict[str, Any]] = {}
        self.epoch = 0
        for s in self.specs:
            gang = gang_of(s)
            for _ in range(random.randint(0, s.max_replicas) // gang * gang):
                self.place(s)
            self.directory.apply(s)
        self.announce()

    def _spec(self, i: int) -> WorkloadSpec:
        r = self.random
        most = r.randint(1, 8)
        return spec(
            f"w{i}", priority=r.randint(0, 3), interruptible=r.random() < 0.6, gang_size=r.choice([1, 1, 1, 2, 3]),
            gpus_per_replica=float(r.choice([1, 1, 2, 3])), gpu_models=r.choice([(), MODELS[:1], MODELS[1:], MODELS]),
            min_replicas=r.choice([0, 0, 1, most]), max_replicas=most, checkpoint_s=float(r.choice([0, 10])),
        )  # fmt: skip

    def free(self) -> list[Place]:
        taken = {place for places in self.held.values() for place in places}
        return [place for place in self.model if place not in taken]

    def rooms(self, stopped: frozenset[tuple[str, str]] = frozenset()) -> dict[Room, int]:
        """Free GPUs by node and model, once some replicas are gone."""
        taken = {place for key, places in self.held.items() if key not in stopped for place in places}
        found = dict.fromkeys(sorted({(node, model) for (node, _), model in self.model.items()}), 0)
        for place, model in self.model.items():
            found[place[0], model] += place not in taken
        return found

    def spans(self, s: WorkloadSpec) -> bool:
        """Whether no node is large enough for a replica."""
        sizes = Counter((node, model) for (node, _), model in self.model.items())
        return max((n for (_, model), n in sizes.items() if accepts(s, model)), default=0) < s.gpus_per_replica

    def place(self, s: WorkloadSpec) -> bool:
        """Start one replica on some node that has room, or over several if none is large enough."""
        need = int(s.gpus_per_replica)
        fit = [p for p in self.free() if accepts(s, self.model[p])]
        if not self.spans(s):
            rooms = [room for room, n in self.rooms().items() if accepts(s, room[1]) and n >= need]
            room = self.random.choice(rooms) if rooms else None
            fit = [p for p in fit if (p[0], self.model[p]) == room]
        if len(fit) < need:
            return False
        number = next(i for i in range(1000) if (s.workload, f"{i:03}") not in self.held)
        self.held[s.workload, f"{number:03}"] = self.random.sample(fit, need)
        return True

    def announce(self) -> None:
        """Say what runs, as agents do."""
        self.epoch += 1
        for node in sorted({node for node, _ in self.model}):
            rows = sum(n == node for n, _ in self.model)
            base = inventory(node, rows, epoch=self.epoch, time_ns=START_NS + self.epoch)
            devices = tuple(
                msgspec.structs.replace(d, model=self.model[node, row]) for row, d in enumerate(base.devices)
            )
            parts = [
                Allocation(workload=w, replica=name, devices=tuple(row for n, row in places if n == node))
                for (w, name), places in sorted(self.held.items())
                if any(n == node for n, _ in places)
            ]
            self.directory.apply(msgspec.structs.replace(base, devices=devices, allocations=tuple(parts)))

    def replicas(self, workload: str) -> list[str]:
        return [name for w, name in sorted(self.held) if w == workload]

    def running(self, workload: str, now: int) -> int:
        order = self.order(workload, now)
        return order["target"] if order else len(self.replicas(workload))

    def order(self, workload: str, now: int) -> dict[str, Any] | None:
        """What was decided last, until it expires, is refused, or has come true."""
        order = self.orders.get(workload)
        if order is None or order["expires"] <= now or order["target"] == len(self.replicas(workload)):
            return None
        return order

    def note(self, decision: AnyDecision) -> None:
        """Remember a decision."""
        if isinstance(decision, Migrate | Check):
            return
        w, now = decision.workload, decision.time_ns
        stops = set[str]()
        if isinstance(decision, Preempt):
            stops = set(decision.victims if decision.replicas else self.replicas(w))
        last = self.order(w, now)
        if last is not None and decision.replicas <= last["target"]:
            stops |= last["stops"]
        self.orders[w] = {
            "id": decision.id, "target": decision.replicas, "stops": stops, "expires": decision.expires_ns,
        }  # fmt: skip

    def obey(self, decision: AnyDecision) -> None:
        """Do what was decided, as far as there is room."""
        if isinstance(decision, Migrate | Check):
            return
        w = decision.workload
        s = self.directory.specs[w]
        if isinstance(decision, Preempt):
            for name in decision.victims:
                self.held.pop((w, name), None)
        while len(self.replicas(w)) > decision.replicas:
            del self.held[w, self.random.choice(self.replicas(w))]
        while isinstance(decision, Scale) and len(self.replicas(w)) < decision.replicas and self.place(s):
            pass

    def refuse(self, decision: AnyDecision) -> Outcome:
        if self.orders.get(decision.workload, {}).get("id") == decision.id:
            del self.orders[decision.workload]
        return Outcome(
            id="o", decision=decision.id, type="Scale", target=decision.target, cell=CELL, workload=decision.workload,
            time_ns=decision.time_ns, status="refused", mode="live", driver="test",
            allowed=self.random.choice((None, 0, 1, 2, 4)),
        )  # fmt: skip

    def requested(self, now: int) -> list[Requested]:
        """Replicas that were promised and are still to come."""
        found: list[Requested] = []
        for s in self.specs:
            order = self.order(s.workload, now)
            more = order["target"] - len(self.replicas(s.workload)) if order is not None else 0
            models = frozenset(m for m in MODELS if accepts(s, m))
            found += [Requested(int(s.gpus_per_replica), models, self.spans(s))] * max(0, more)
        return found

    def stopping(self, now: int) -> frozenset[tuple[str, str]]:
        """Replicas that are about to stop."""
        orders = [(s.workload, self.order(s.workload, now)) for s in self.specs]
        return frozenset((name, replica) for name, order in orders if order is not None for replica in order["stops"])

    def proposals(self, at: Tick) -> list[Proposal]:
        """Any proposals about any workloads, some of which do not exist."""
        names = [s.workload for s in self.specs]
        some = self.random.sample([*names, "nobody"], self.random.randint(0, len(names)))
        return [proposal(name, at, self.random.randint(0, 9), i) for i, name in enumerate(some)] + [
            proposal(name, at, 0, 90, "pause") for name in names if self.random.random() < 0.05
        ]


def proposal(workload: str, at: Tick, replicas: int, number: int = 0, kind: str = "scale", **changes: Any) -> Proposal:
    given: dict[str, Any] = {
        "id": f"{at.index}-{workload}-{number}", "action": kind, "workload": workload, "reason": "the test says so",
        "replicas": replicas,
    }  # fmt: skip
    return Proposal(**(given | changes))


def accepts(s: WorkloadSpec, model: str) -> bool:
    return not s.gpu_models or model in s.gpu_models


def gang_of(s: WorkloadSpec) -> int:
    return min(s.gang_size, s.max_replicas)


def packs(rooms: dict[Room, int], requested: list[Requested]) -> bool:
    """Whether all replicas find room together, by trying everything: no rule of the arbiter is used.

    Replicas of one GPU and those that may span nodes only need enough GPUs of their models: by Hall's theorem it is
    enough to look at each set of models.
    """
    whole = sorted((a for a in requested if a.gpus > 1 and not a.spans), key=lambda a: (-a.gpus, sorted(a.models)))
    loose = [a for a in requested if a.gpus == 1 or a.spans]
    names, tried = list(rooms), set[tuple[int, tuple[int, ...]]]()

    def spread(free: tuple[int, ...]) -> bool:
        for models in (frozenset(MODELS[:1]), frozenset(MODELS[1:]), frozenset(MODELS)):
            there = sum(n for (_, model), n in zip(names, free, strict=True) if model in models)
            if sum(a.gpus for a in loose if a.models <= models) > there:
                return False
        return True

    def search(i: int, free: tuple[int, ...]) -> bool:
        if i == len(whole):
            return spread(free)
        if (i, free) in tried:
            return False
        tried.add((i, free))
        one = whole[i]
        return any(
            search(i + 1, (*free[:r], free[r] - one.gpus, *free[r + 1 :]))
            for r, (_, model) in enumerate(names)
            if model in one.models and free[r] >= one.gpus
        )

    return search(0, tuple(rooms.values()))
