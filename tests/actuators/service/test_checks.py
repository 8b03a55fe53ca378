"""A check from its decision on the broker to the node that the simulated fleet opens."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.loop import config_for, ended, of, publish, running, statuses_of, wait_for
from tests.actuators.samples import NOW, check, migrate, spec
from tests.streams.engine.cell.test_checks import fleet

from flyball_contracts.config import PlatformConfig
from flyball_contracts.config.fleet import FailingGpu
from flyball_simulator import Fleet
from flyball_simulator.service.platform import Platform
from flyball_simulator.service.server import bound, serving

Unique = Callable[[str], str]
CELL = "cell-1"


@pytest.mark.parametrize(
    ("dies", "expected"), [(False, ["accepted", "running", "done"]), (True, ["accepted", "running", "failed"])]
)
def test_a_node_of_the_simulated_fleet_is_checked(
    bootstrap: str, unique: Unique, tmp_path: Path, dies: bool, expected: list[str]
) -> None:
    faults = (FailingGpu(workload="train", replica=0, from_s=0.0),) if dies else ()
    made = Fleet(fleet(failing=faults), NOW)
    platform, ticks = Platform(made, 60.0), iter(range(10_000))
    platform.tick(next(ticks))
    node, held = next((n, a) for n in made.nodes for a in n.allocations if a.workload == "train")
    device = node.devices[held.devices[0]].id
    publish(bootstrap, spec("train", cell=CELL), *made.nodes)
    with bound(platform, "127.0.0.1:0") as server, serving(server) as url:
        config = config_for(
            bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), allow=("*", "node:*"),
            platforms=(PlatformConfig(cells=(CELL,), driver="simulated", url=url, poll_s=0.02),),
        )  # fmt: skip

        def over(count: int) -> Callable[[], bool]:
            def tick_until_ended() -> bool:
                platform.tick(next(ticks))
                return ended(bootstrap, count)()

            return tick_until_ended

        with running(config):
            early = check("early", node=node.node, cell=CELL)
            publish(bootstrap, early)
            wait_for(over(1), "a node that is in use is not checked")
            move = migrate(
                "m", cell=CELL, workload="train", replica=held.replica, from_node=node.node, from_device=device
            )
            publish(bootstrap, move)
            wait_for(over(2), "the replica has left")
            publish(bootstrap, check("c", node=node.node, cell=CELL, devices=(device,)))
            wait_for(over(3), "the check is over")
    assert statuses_of(bootstrap, "early")[-1] == "refused conflict"
    assert "is in use; wait until it is empty" in of(bootstrap, "early", "refused").detail
    assert statuses_of(bootstrap, "m")[-1] == "done"
    assert statuses_of(bootstrap, "c") == expected
    last = of(bootstrap, "c", expected[-1])
    assert last.observed is not None
    assert last.observed.suspended is dies
    assert ("runs nothing" in last.answer) is dies
    assert platform.node(node.node).cordoned == ((device,) if dies else ())


def test_patterns_for_workloads_let_no_node_be_opened(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    made = Fleet(fleet(), NOW)
    publish(bootstrap, *made.nodes)
    with running(config_for(bootstrap, unique("actuator"), allow=("*",))):
        publish(bootstrap, check("c", node=made.nodes[0].node, cell=CELL))
        wait_for(ended(bootstrap, 1), "the refusal")
    assert statuses_of(bootstrap, "c") == ["refused not_allowed"]


def test_a_dry_run_plans_on_the_inventories(bootstrap: str, unique: Unique) -> None:
    made = Fleet(fleet(), NOW)
    publish(bootstrap, *made.nodes)
    with running(config_for(bootstrap, unique("actuator"))):
        publish(bootstrap, check("c", node=made.nodes[0].node, cell=CELL), check("d", node="absent", cell=CELL))
        wait_for(ended(bootstrap, 2), "the plan")
    planned = of(bootstrap, "c", "planned")
    assert planned.answer.startswith(f"would check cell-1/node:{made.nodes[0].node}: attempt 1")
    assert planned.expected is not None
    assert planned.expected.suspended is False
    assert statuses_of(bootstrap, "d") == ["refused unknown_target"]
