import pytest
from tests.actuators.samples import migrate, preempt, scale

from flyball_actuators.drivers import DRIVERS, Driver, DryRun, make_driver
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, Resources

TARGET = "target 'chat' (workload 'chat', cell 'cell-a')"
MOVED = f"would have migrated replica 'chat-0' of {TARGET} from device 'GPU-1' of node 'n1' to"


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (scale(), f"would have scaled {TARGET} from 4 to 6 replicas"),
        (scale(power_limit_w=300.0), f"would have scaled {TARGET} from 4 to 6 replicas with a power limit of 300 W"),
        (
            scale(mix=[("od", 4, 2), ("spot", 0, 4)]),
            f"would have scaled {TARGET} from 4 to 6 replicas: 2 on od, 4 on spot",
        ),
        (
            scale(after=4, resources=Resources(cpu=1.5, memory_bytes=2**34, gpu_profile="1g.10gb")),
            "would have set CPU cores to 1.5 and bytes of memory to 17,179,869,184 and part of a GPU to 1g.10gb "
            f"for each of the 4 replicas of {TARGET}",
        ),
        (migrate(), f"{MOVED} a node of the scheduler's choice"),
        (migrate(to_node="n2"), f"{MOVED} node 'n2'"),
        (
            preempt(victims=("chat-3", "chat-2")),
            f"would have preempted {TARGET} from 4 to 2 replicas (chat-3, chat-2) after a checkpoint, "
            "until there is room",
        ),
        (
            preempt(until_s=60),
            f"would have preempted {TARGET} from 4 to 2 replicas after a checkpoint, "
            "until 2027-01-15T08:01:00.000000000Z",
        ),
    ],
)
def test_dry_run_says_what_it_would_have_done(decision: AnyDecision, says: str) -> None:
    assert DryRun().apply(decision) == ("done", f"{says}; nothing was changed")


def test_the_registry_knows_its_drivers() -> None:
    for name in DRIVERS:
        driver: Driver = make_driver(name)
        assert driver.name == name
    with pytest.raises(ConfigError, match=r"'kubernets' is not known; use one of: dry_run"):
        make_driver("kubernets")
