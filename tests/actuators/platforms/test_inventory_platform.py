import pytest
from tests.actuators.samples import migrate, preempt, scale

from flyball_actuators.platforms import Handle, InventoryPlatform, Rejected
from flyball_contracts.records import AnyDecision, Resources, SubjectState

PLATFORM = InventoryPlatform(lambda cell, workload: {"chat-0": "n1", "chat-1": "n2"} if workload == "chat" else {})


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (scale(), "scale cell-a/chat: 4 → 6 replicas"),
        (scale(power_limit_w=300.0), "scale cell-a/chat: 4 → 6 replicas, power limit 300 W"),
        (scale(mix=[("od", 4, 2), ("spot", 0, 4)]), "scale cell-a/chat: 4 → 6 replicas, 4 → 2 on od, 0 → 4 on spot"),
        (
            scale(after=4, resources=Resources(cpu=1.5, memory_bytes=2**34, gpu_profile="1g.10gb")),
            "scale cell-a/chat: CPU 1.5, memory 17.2 GB, 1g.10gb for each of 4 replicas",
        ),
        (migrate(), "migrate cell-a/chat: chat-0: GPU-1 of n1 → another node"),
        (migrate(to_node="n2"), "migrate cell-a/chat: chat-0: GPU-1 of n1 → n2"),
        (
            preempt(victims=("chat-3", "chat-2")),
            "preempt cell-a/chat: 4 → 2 replicas (chat-3, chat-2 stop) until there is room",
        ),
        (preempt(until_s=60), "preempt cell-a/chat: 4 → 2 replicas until 2027-01-15 08:01:00 UTC"),
    ],
)
def test_a_plan_says_what_would_be_done(decision: AnyDecision, says: str) -> None:
    observed = PLATFORM.observe(decision)
    assert isinstance(observed, SubjectState)
    planned = PLATFORM.submit(decision, observed, dry_run=True)
    assert isinstance(planned, Handle)
    assert (planned.operation, planned.answer) == ("", f"would {says}; nothing was changed")


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
