"""Whatever a platform does with its orders: no pool leaves its range, and no want is bought for twice."""

import math
from random import Random
from typing import Any

import pytest
from tests.streams.engine.cell.arbiter_harness import node
from tests.streams.engine.pools.test_buying import PoolHarness, pool
from tests.streams.engine.scene import spec

from flyball_contracts.records import Pool, Scale, SubjectState

GPUS, TICKS = 4, 400
KINDS: dict[str, dict[str, Any]] = {
    "a": {"instance_type": "a", "capacity_type": "spot"},
    "b": {"instance_type": "b", "capacity_type": "on_demand"},
}


class Seller:
    """Two pools that sell machines after a while, or refuse, fail or lose them; one workload runs on them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        least, most = self.random.randint(0, 1), self.random.randint(2, 4)
        self.pools: dict[str, Pool] = {
            "a": pool("a", market="spot", min_machines=least, max_machines=most, price_usd_per_hour=3.0),
            "b": pool("b", min_machines=0, max_machines=most, price_usd_per_hour=10.0),
        }
        self.harness = PoolHarness(spec("w", max_replicas=64), *self.pools.values())
        self.machines: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        self.requested = {"a": 0, "b": 0}
        self.running = 0
        self.number = self.epoch = 0
        self.due: list[tuple[int, Scale]] = []
        for name in self.pools:
            self.resize(name, least if name == "a" else 0, ())

    def resize(self, name: str, count: int, victims: tuple[str, ...]) -> None:
        """Have so many machines; those that are named go first, of those that are empty."""
        here = self.machines[name]
        while len(here) < count:
            self.number += 1
            here[f"{name}-{self.number}"] = 0
        for gone in sorted(here, key=lambda n: (here[n] > 0, n not in victims))[: len(here) - count]:
            self.lose(name, gone)
        self.requested[name] = count

    def lose(self, name: str, machine: str) -> None:
        self.running -= self.machines[name].pop(machine)
        self.epoch += 1
        self.harness.know(node(machine, 0, epoch=self.epoch, **KINDS[name]))

    def run(self, replicas: int) -> None:
        """Run so many replicas, as far as they fit."""
        self.running, left = 0, replicas
        self.epoch += 1
        for name, here in self.machines.items():
            for machine in here:
                here[machine] = min(GPUS, left)
                held = {f"w/{self.running + i}": (i,) for i in range(here[machine])}
                left -= here[machine]
                self.running += here[machine]
                self.harness.know(node(machine, GPUS, held, epoch=self.epoch, **KINDS[name]))

    def carry_out(self, tick: int, decision: Scale) -> None:
        name = decision.workload.removeprefix("pool:")
        known = self.pools[name]
        assert decision.replicas != decision.replicas_before
        bounds = known.min_machines <= decision.replicas <= known.max_machines
        assert bounds, f"{decision.replicas} is not in {known.min_machines} to {known.max_machines}"
        luck = self.random.random()
        if luck < 0.15:
            self.harness.refuse(decision, "limit")
        elif luck < 0.2:
            self.harness.report(decision, "planned", mode="dry_run")
        elif luck > 0.9:
            pass  # nobody answers
        else:
            self.harness.report(decision, "accepted")
            self.requested[name] = max(self.requested[name], decision.replicas)
            self.due.append((tick + self.random.randint(1, 40), decision))

    def deliver(self, tick: int) -> None:
        for at, decision in [one for one in self.due if one[0] <= tick]:
            self.due.remove((at, decision))
            name = decision.workload.removeprefix("pool:")
            here = self.machines[name]
            busy = sum(here[machine] > 0 for machine in here)
            if busy > decision.replicas or (self.random.random() < 0.2 and decision.replicas >= len(here)):
                self.requested[name] = len(here)
                shown = SubjectState(replicas=self.requested[name], ready=self.requested[name])
                self.harness.report(decision, "failed", observed=shown)
                continue
            self.resize(name, decision.replicas, decision.victims)
            self.harness.report(
                decision, "done", observed=SubjectState(replicas=decision.replicas, ready=decision.replicas)
            )


@pytest.mark.parametrize("seed", range(12))
def test_no_pool_leaves_its_range_and_no_want_is_bought_for_twice(seed: int) -> None:
    seller = Seller(seed)
    wanted, bought = 0, 0
    for tick in range(TICKS):
        if tick % 40 == 0:
            wanted = seller.random.choice((0, 3, 8, 20))
        if seller.random.random() < 0.01:
            here = [(name, machine) for name, machines in seller.machines.items() for machine in machines]
            for name, machine in here[:1]:
                seller.requested[name] -= 1
                seller.lose(name, machine)
        seller.deliver(tick)
        seller.run(wanted)
        before = sum(max(seller.requested[name], len(seller.machines[name])) for name in seller.pools)
        added = 0
        for decision in seller.harness.pass_ticks(1, "w", wanted):
            if isinstance(decision, Scale) and decision.workload != "w":
                added += max(0, decision.replicas - decision.replicas_before)
                seller.carry_out(tick, decision)
        bought += added
        if added:
            assert before + added <= math.ceil(wanted / GPUS), "some of it was bought for already"
    assert bought
