import pytest
from tests.actuators.samples import migrate, preempt, scale

from flyball_actuators.platforms import Handle, InventoryPlatform, Rejected
from flyball_contracts.records import AnyDecision, Resources, SubjectState

PLATFORM = InventoryPlatform(lambda cell, workload: {"chat-0": "n1", "chat-1": "n2"} if workload == "chat" else {})
TARGET = "target 'cell-a/chat' (workload 'chat', cell 'cell-a')"
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
def test_a_plan_says_what_would_be_done(decision: AnyDecision, says: str) -> None:
    observed = PLATFORM.observe(decision)
    assert isinstance(observed, SubjectState)
    planned = PLATFORM.submit(decision, observed, dry_run=True)
    assert isinstance(planned, Handle)
    assert (planned.operation, planned.answer) == ("", f"{says}; nothing was changed")


def test_it_shows_what_the_inventories_show() -> None:
    assert PLATFORM.observe(scale()) == SubjectState(replicas=2, ready=2)
    assert PLATFORM.observe(migrate()) == SubjectState(replicas=2, ready=2, nodes={"chat-0": "n1"})
    assert PLATFORM.observe(scale(workload="unseen")) == SubjectState(), "not seen is not known, and not none"


def test_the_plan_says_what_it_should_lead_to() -> None:
    def expected(decision: AnyDecision) -> SubjectState:
        planned = PLATFORM.submit(decision, SubjectState(replicas=4, ready=3), dry_run=True)
        assert isinstance(planned, Handle)
        return planned.expected

    assert expected(scale(power_limit_w=300.0)) == SubjectState(replicas=6, ready=6, power_limit_w=300.0)
    assert expected(migrate(to_node="n2")) == SubjectState(replicas=4, ready=3, nodes={"chat-0": "n2"})
    assert expected(preempt(victims=("chat-3",))) == SubjectState(replicas=2, ready=2, nodes={"chat-3": ""})


def test_it_can_plan_and_not_act() -> None:
    refused = PLATFORM.submit(scale(), SubjectState(), dry_run=False)
    assert isinstance(refused, Rejected)
    assert refused.code == "unsupported"
    assert PLATFORM.capabilities.kinds == frozenset()
