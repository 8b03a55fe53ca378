"""A cell for the arbiter's tests: any nodes and workloads, and a platform that obeys, dawdles or refuses."""

from collections import Counter
from random import Random
from typing import Any

import msgspec
from tests.streams.engine.scene import CELL, START_NS, inventory, spec

from flyball_contracts.records import (
    Allocation,
    AnyDecision,
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
            gpus_per_replica=float(r.choice([1, 1, 2])), gpu_models=r.choice([(), MODELS[:1], MODELS[1:], MODELS]),
            min_replicas=r.choice([0, 0, 1, most]), max_replicas=most, checkpoint_s=float(r.choice([0, 10])),
        )  # fmt: skip

    def free(self) -> list[Place]:
        taken = {place for places in self.held.values() for place in places}
        return [place for place in self.model if place not in taken]

    def place(self, s: WorkloadSpec) -> bool:
        """Start one replica somewhere, over several nodes if need be."""
        fit = [p for p in self.free() if accepts(s, self.model[p])]
        need = int(s.gpus_per_replica)
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
        if isinstance(decision, Migrate):
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
        if isinstance(decision, Migrate):
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
        )  # fmt: skip

    def shortage(self, now: int) -> float:
        """GPUs promised that are neither free nor about to be, by the deficiency form of Hall's theorem."""
        supply: Counter[str] = Counter(self.model[p] for p in self.free())
        claims: list[tuple[frozenset[str], float]] = []
        for s in self.specs:
            order = self.order(s.workload, now)
            if order is None:
                continue
            for name in order["stops"]:
                supply.update(self.model[p] for p in self.held.get((s.workload, name), []))
            more = order["target"] - len(self.replicas(s.workload))
            if more > 0:
                claims.append((frozenset(m for m in MODELS if accepts(s, m)), more * s.gpus_per_replica))
        return max(
            sum(gpus for accepted, gpus in claims if accepted <= models) - sum(supply[m] for m in models)
            for models in (frozenset[str](), frozenset(MODELS[:1]), frozenset(MODELS[1:]), frozenset(MODELS))
        )

    def wishes(self, at: Tick) -> list[Proposal]:
        """Any wishes about any workloads, some of which do not exist."""
        names = [s.workload for s in self.specs]
        some = self.random.sample([*names, "nobody"], self.random.randint(0, len(names)))
        return [wish(name, at, self.random.randint(0, 9), i) for i, name in enumerate(some)] + [
            wish(name, at, 0, 90, "pause") for name in names if self.random.random() < 0.05
        ]


def wish(workload: str, at: Tick, replicas: int, number: int = 0, kind: str = "scale", **changes: Any) -> Proposal:
    given: dict[str, Any] = {
        "id": f"{at.index}-{workload}-{number}", "wish": kind, "workload": workload, "reason": "the test says so",
        "replicas": replicas,
    }  # fmt: skip
    return Proposal(**(given | changes))


def accepts(s: WorkloadSpec, model: str) -> bool:
    return not s.gpu_models or model in s.gpu_models


def gang_of(s: WorkloadSpec) -> int:
    return min(s.gang_size, s.max_replicas)
