"""What is summed as inventories arrive is what a walk over all of them gives."""

import random

import msgspec
import pytest
from tests.actuators.samples import CELL, NOW, inventory, spec

from flyball_actuators.guard import World
from flyball_actuators.world import WorldTables
from flyball_contracts.records import Allocation, Device, Inventory, WorkloadSpec
from flyball_contracts.topics import INVENTORY, WORKLOADS

replace = msgspec.structs.replace
NAMES = ("a", "b", "c")


def some_node(chance: random.Random) -> Inventory:
    node = replace(
        inventory(f"n{chance.randrange(4)}", cell=chance.choice([CELL, CELL, "cell-b"]), devices=2),
        schedulable=chance.random() < 0.8,
        time_ns=NOW,
    )
    devices = tuple(_device(device, chance) for device in node.devices)
    runs = tuple(
        Allocation(workload=name, replica=f"{name}-{chance.randrange(3)}", devices=(chance.randrange(2),))
        for name in chance.choices(NAMES, k=chance.randrange(4))
    )
    return replace(node, devices=devices, allocations=runs)


def _device(device: Device, chance: random.Random) -> Device:
    return replace(device, shared=chance.random() < 0.2, power_limit_w=chance.choice([None, 300.0, 700.0]))


def some_spec(chance: random.Random) -> WorkloadSpec:
    share = chance.choice([0.0, 0.5, 1.0, 2.0])
    return replace(spec(chance.choice(NAMES)), tenant=chance.choice(["x", "y"]), gpus_per_replica=share)


@pytest.mark.parametrize("seed", range(20))
def test_sums_that_are_kept_are_those_of_a_walk(seed: int) -> None:
    chance, tables, latest = random.Random(seed), WorldTables(), dict[str, Inventory]()
    for _ in range(60):
        pick = chance.random()
        if pick < 0.6:
            node = some_node(chance)
            latest[node.node] = node
            tables.take(node)
        elif pick < 0.8:
            tables.take(some_spec(chance))
        elif pick < 0.9:
            name = f"n{chance.randrange(4)}"
            latest.pop(name, None)
            tables.forget(INVENTORY.name, name)
        else:
            tables.forget(WORKLOADS.name, chance.choice(NAMES))
        kept = tables.view("")
        assert tidy(kept) == tidy(kept._replace(sums=None))
        walked: dict[tuple[str, str], set[str]] = {}
        for node in latest.values():
            for part in node.allocations:
                walked.setdefault((node.cell, part.workload), set()).add(part.replica)
        assert walked == {
            (cell, name): set(replicas) for cell, of in kept.placed.items() for name, replicas in of.items()
        }
        for cell, of in kept.placed.items():
            for name, replicas in of.items():
                assert all(
                    any((part.workload, part.replica) == (name, replica) for part in latest[node].allocations)
                    for replica, node in replicas.items()
                ), cell


def tidy(world: World) -> tuple[object, ...]:
    """Sums without what is empty."""
    sums = world.summed()
    held = {(cell, tenant): had for cell, of in sums.held.items() for tenant, had in of.items() if had != (0, 0.0)}
    declared = {name: sums.of(name) for name in NAMES}
    return held, declared, {(cell, spot): set(nodes) for cell, of in sums.spots.items() for spot, nodes in of.items()}
