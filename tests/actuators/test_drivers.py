import pytest
from tests.actuators.samples import migrate, preempt, scale

from flyball_actuators.drivers import DRIVERS, Driver, DryRun, make_driver
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (scale(power_limit_w=300.0), "would have scaled target 'chat' (workload 'chat', cell 'cell-a') from 4 to 6 replicas"
         " with a power limit of 300 W; nothing was changed"),
        (migrate(), "would have migrated replica 'chat-0' of target 'chat' (workload 'chat', cell 'cell-a') from device"
         " 'GPU-1' of node 'n1' to a node of the scheduler's choice; nothing was changed"),
        (migrate(to_node="n2"), "would have migrated replica 'chat-0' of target 'chat' (workload 'chat', cell 'cell-a')"
         " from device 'GPU-1' of node 'n1' to node 'n2'; nothing was changed"),
        (preempt(until_s=60), "would have preempted target 'chat' (workload 'chat', cell 'cell-a') from 4 to 2 replicas"
         " after a checkpoint, until 2027-01-15T08:01:00.000000000Z; nothing was changed"),
    ],
)  # fmt: skip
def test_dry_run_says_what_it_would_have_done(decision: AnyDecision, says: str) -> None:
    assert DryRun().apply(decision) == ("done", says)


def test_the_registry_knows_its_drivers() -> None:
    for name in DRIVERS:
        driver: Driver = make_driver(name)
        assert driver.name == name
    with pytest.raises(ConfigError, match=r"'kubernets' is not known; use one of: dry_run"):
        make_driver("kubernets")
