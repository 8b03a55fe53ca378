"""Pools on AWS, by boto3, on moto behind a strict proxy: what is bought and returned is judged at the server."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.brokers.embedded import EmbeddedBroker
from tests.clouds.aws import Account
from tests.clouds.buying import buy, claimed, settle
from tests.clouds.serving import carried_out_by_the_service
from tests.clouds.strict import Refusal

from flyball_actuators.platforms import Done, Failed, Handle, PlatformError, Rejected, Running, Superseded
from flyball_actuators.platforms.calls import Call, StoppedError, recording_calls
from flyball_contracts.config import PoolConfig

KINDS = ["fleet", "group", "node_group"]
BUYS = ("ec2:CreateFleet", "autoscaling:SetDesiredCapacity", "eks:UpdateNodegroupConfig")


def pool(aws: Account, kind: str, machines: int = 0) -> PoolConfig:
    if kind == "fleet":
        made = aws.fleet()
        if machines:
            assert isinstance(carried_out(aws.platform(made), buy(made, 0, machines, f"first-{made.name}")), Done)
        return made
    return aws.group(machines) if kind == "group" else aws.node_group(machines)


def test_pools_grow_and_shrink_with_the_rights_of_the_policy_and_need_all_of_them(aws: Account) -> None:
    for made in (*(pool(aws, kind) for kind in KINDS), aws.fleet(template="gpu-flyball")):
        platform = aws.platform(made)
        out = carried_out(platform, buy(made, 0, 3, f"out-{made.name}"))
        assert isinstance(out, Done), out
        assert (out.observed.replicas, out.observed.ready, aws.size(made)) == (3, 3, 3)
        back = carried_out(platform, buy(made, 3, 1, f"in-{made.name}"))
        assert isinstance(back, Done), back
        assert (back.observed.replicas, aws.size(made)) == (1, 1)
    # The proxy refuses all that the policy does not give on the resources of a call, with their tags.
    assert aws.proxy.policy.used == aws.proxy.policy.rights


def test_what_is_not_tagged_as_a_pool_is_left_alone_and_no_other_role_is_given_to_machines(aws: Account) -> None:
    """The policy's conditions, judged at the cloud."""
    admin, group, nodes = aws.fleet(template="gpu-admin"), aws.group(1, tagged=False), aws.node_group(1, tagged=False)
    for made, right in (
        (aws.fleet(template="gpu-untagged"), "ec2:CreateFleet on arn:aws:ec2:eu-west-1:123456789012:launch-template/"),
        (admin, "iam:PassRole on arn:aws:iam::123456789012:role/gpu-admin"),
        (group, "autoscaling:CreateOrUpdateTags"),
        (nodes, "eks:TagResource"),
    ):
        before = aws.size(made)
        answer = submitted(aws.platform(made), buy(made, before, before + 1, f"untagged-{made.name}"))
        assert isinstance(answer, Rejected)
        assert f"not authorized: {right}" in answer.detail
        assert "grant what infra/aws/actuator-policy.json has" in answer.detail
        assert aws.size(made) == before
    mixed = aws.group(2)
    ids = [one["InstanceId"] for one in aws.machines(mixed)]
    aws.ec2.delete_tags(Resources=ids, Tags=[{"Key": "flyball.dev/pool"}])
    answer = submitted(aws.platform(mixed), buy(mixed, 2, 1, "not-handed-on"))
    assert isinstance(answer, Rejected)
    assert "not authorized: ec2:CreateTags on arn:aws:ec2" in answer.detail
    assert aws.size(mixed) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_buys_nothing(aws: Account, kind: str) -> None:
    made = pool(aws, kind)
    handle = submitted(aws.platform(made), buy(made, 0, 2), dry_run=True)
    assert isinstance(handle, Handle)
    assert handle.operation == ""
    assert aws.size(made) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_crash_between_call_and_answer_settles_to_exactly_one(aws: Account, kind: str, cut: str) -> None:
    made = pool(aws, kind)
    action = {
        "fleet": "ec2:CreateFleet",
        "group": "autoscaling:SetDesiredCapacity",
        "node_group": "eks:UpdateNodegroupConfig",
    }[kind]
    decision = buy(made, 0, 1, f"cut-{made.name}")
    aws.proxy.lag_s = 0.02  # what was launched is shown later than that
    aws.proxy.cut[action] = cut
    before_it = claimed(aws.platform(made), decision)
    with pytest.raises(PlatformError):
        submitted(aws.platform(made), decision)
    assert aws.size(made) == (1 if cut == "after" else 0)
    restarted = aws.platform(made)  # a process that knows nothing
    handle = settle(restarted, decision, before_it)
    assert isinstance(handle, Handle), handle
    assert isinstance(ended(restarted, handle), Done)
    assert aws.size(made) == 1
    assert isinstance(settle(aws.platform(made), decision, before_it), Handle)
    assert aws.size(made) == 1


@pytest.mark.parametrize("kind", ["fleet", "group"])
@pytest.mark.parametrize("action", ["ec2:CreateTags", "end"])
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_crash_while_machines_go_returns_no_more_than_was_said(
    aws: Account, kind: str, action: str, cut: str
) -> None:
    made = pool(aws, kind, 4)
    ends = "ec2:TerminateInstances" if kind == "fleet" else "autoscaling:TerminateInstanceInAutoScalingGroup"
    decision = buy(made, 4, 2, f"less-{made.name}")
    first = aws.platform(made)
    before_it = claimed(first, decision)
    if action == "end":
        handle = submitted(first, decision)
        assert isinstance(handle, Handle)
        aws.proxy.cut[ends] = cut
        with pytest.raises(PlatformError):
            first.poll(handle)
    else:
        aws.proxy.cut[action] = cut
        with pytest.raises(PlatformError):
            submitted(first, decision)
    restarted = aws.platform(made)
    handle = settle(restarted, decision, before_it)
    assert isinstance(handle, Handle), handle
    done = ended(restarted, handle)
    assert isinstance(done, Done), done
    assert aws.size(made) == 2


def test_machines_with_work_and_protected_ones_stay(aws: Account) -> None:
    made = pool(aws, "group", 4)
    first, second, *others = sorted(one["InstanceId"] for one in aws.machines(made))
    aws.asg.set_instance_protection(AutoScalingGroupName=made.resource, InstanceIds=[second], ProtectedFromScaleIn=True)
    dns = next(one["PrivateDnsName"] for one in aws.machines(made) if one["InstanceId"] == first)
    platform = aws.platform(made, busy=frozenset({dns}))
    too_many = submitted(platform, buy(made, 4, 1, "three"))
    assert isinstance(too_many, Rejected)
    assert re.search(rf"only 2 are idle and unprotected; move the work off {first}, {second}", too_many.detail)
    assert aws.size(made) == 4
    assert isinstance(carried_out(platform, buy(made, 4, 2, "two")), Done)
    assert sorted(one["InstanceId"] for one in aws.machines(made)) == sorted([first, second])
    assert others


@pytest.mark.parametrize("kind", ["fleet", "group"])
def test_a_return_is_judged_again_before_each_machine_goes(aws: Account, kind: str) -> None:
    """Machines are chosen, and an actuator goes on hours later: one has work by then, or everything is stopped."""
    made = pool(aws, kind, 3)
    decision = buy(made, 3, 1, f"less-{made.name}")
    handle = submitted(aws.platform(made), decision)
    assert isinstance(handle, Handle)
    first, second = handle.answer.split("returns ")[1].split(" of ")[0].split(", ")
    dns = next(one["PrivateDnsName"] for one in aws.machines(made) if one["InstanceId"] == first)
    later = aws.platform(made, busy=frozenset({dns}))
    calls: list[Call] = []
    with recording_calls(calls.append, lambda: "ann stopped everything"), pytest.raises(StoppedError):
        later.poll(handle)
    assert (aws.size(made), calls) == (3, [])
    with recording_calls(calls.append):
        failed = ended(later, handle)
    assert isinstance(failed, Failed)
    assert f"{first} got work since it was chosen, and stays" in failed.answer
    left = [one["InstanceId"] for one in aws.machines(made)]
    assert first in left
    assert second not in left
    (call,) = calls
    assert second in call.object
    assert (call.status, bool(call.request_id)) == ("200", True)


def test_machines_bear_the_decision(aws: Account) -> None:
    made = pool(aws, "fleet")
    carried_out(aws.platform(made), buy(made, 0, 1, "whose"))
    (machine,) = aws.machines(made)
    assert {"Key": "flyball.dev/decision", "Value": "whose"} in machine["Tags"]
    group = pool(aws, "group")
    carried_out(aws.platform(group), buy(group, 0, 1, "theirs"))
    tags = {tag["Key"]: (tag["Value"], tag["PropagateAtLaunch"]) for tag in aws.shown(group)["Tags"]}
    assert tags == {"flyball.dev/decision": ("theirs", True), "flyball.dev/pool": (group.name, True)}


def test_no_capacity_is_a_refusal_and_some_is_a_failure_that_says_so(aws: Account) -> None:
    made = pool(aws, "fleet")
    aws.proxy.capacity[made.instance_type] = 2
    some = carried_out(aws.platform(made), buy(made, 0, 3, "some"))
    assert isinstance(some, Failed)
    assert some.answer.startswith(f"2 of 3 machines of pool {made.name!r} came: InsufficientInstanceCapacity")
    assert "name further zones" in some.answer
    assert some.observed is not None
    assert (some.observed.replicas, aws.size(made)) == (2, 2)
    none = submitted(aws.platform(made), buy(made, 2, 3, "none"))
    assert isinstance(none, Rejected)
    assert (none.code, "InsufficientInstanceCapacity" in none.detail) == ("platform", True)
    assert aws.size(made) == 2


def test_what_a_group_does_not_get_is_asked_for_no_more(aws: Account) -> None:
    made = pool(aws, "group", 1)
    aws.proxy.capacity[made.instance_type] = 1
    failed = carried_out(aws.platform(made), buy(made, 1, 4, "short"))
    assert isinstance(failed, Failed)
    assert "4 machines were requested, 2 are there" in failed.answer
    assert "the group is set to 2 again" in failed.answer
    assert failed.observed is not None
    assert (failed.observed.replicas, failed.observed.ready, aws.size(made)) == (2, 2, 2)


def test_a_node_group_that_cannot_grow_is_set_back(aws: Account) -> None:
    made = pool(aws, "node_group", 1)
    handle = submitted(aws.platform(made), buy(made, 1, 3, "issues"))
    assert isinstance(handle, Handle)
    aws.proxy.issues = [{"code": "AsgInstanceLaunchFailures", "message": "insufficient capacity"}]
    failed = ended(aws.platform(made), handle)
    assert isinstance(failed, Failed)
    assert "AsgInstanceLaunchFailures: insufficient capacity" in failed.answer
    assert aws.size(made) == 1


def test_a_spot_interruption_is_replaced_by_a_group_and_told_by_a_fleet(aws: Account) -> None:
    group = pool(aws, "group")
    handle = submitted(aws.platform(group), buy(group, 0, 2, "kept"))
    assert isinstance(handle, Handle)
    lost = aws.interrupt(group)
    done = ended(aws.platform(group), handle)
    assert isinstance(done, Done)
    assert (done.observed.ready, aws.size(group)) == (2, 2)
    assert lost not in {one["InstanceId"] for one in aws.machines(group)}
    fleet = aws.fleet("spot")
    handle = submitted(aws.platform(fleet), buy(fleet, 0, 2, "gone"))
    assert isinstance(handle, Handle)
    lost = aws.interrupt(fleet)
    failed = ended(aws.platform(fleet), handle)
    assert isinstance(failed, Failed)
    assert re.match(rf"{lost} \(.+\) of pool .* ended before all served; decide again", failed.answer)
    assert failed.observed is not None
    assert failed.observed.replicas == 1
    assert isinstance(carried_out(aws.platform(fleet), buy(fleet, 1, 2, "again")), Done)
    assert aws.size(fleet) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_throttling_is_waited_out(aws: Account, kind: str) -> None:
    made = pool(aws, kind)
    for action in BUYS:
        aws.proxy.throttled[action] = 3
    assert isinstance(carried_out(aws.platform(made), buy(made, 0, 1, f"slow-{made.name}")), Done)
    assert aws.size(made) == 1


@pytest.mark.parametrize(
    ("denied", "code", "says"),
    [
        ("ec2:CreateFleet", "platform", "grant what infra/aws/actuator-policy.json has"),
        ("ec2:DescribeInstances", "platform", "UnauthorizedOperation"),
    ],
)
def test_a_missing_right_is_a_refusal(aws: Account, denied: str, code: str, says: str) -> None:
    made = pool(aws, "fleet")
    aws.proxy.denied.add(denied)
    platform, decision = aws.platform(made), buy(made, 0, 1, "denied")
    observed = platform.observe(decision)
    answer = observed if isinstance(observed, Rejected) else platform.submit(decision, observed, dry_run=False)
    assert isinstance(answer, Rejected)
    assert (answer.code, says in answer.detail) == (code, True)
    assert aws.size(made) == 0


REFUSALS = [
    (400, "LimitExceeded", "platform", "raise the account's quota, or request fewer"),
    (400, "ResourceInUseException", "platform", "decide again when what is under way there has ended"),
    (403, "ExpiredToken", "platform", "renew the credentials"),
    (400, "ValidationError", "invalid", "correct the pool in actuator.platforms"),
    (503, "ServiceUnavailable", "", "HTTP 503"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_cloud_refuses_has_a_remedy_and_buys_nothing(aws: Account, kind: str) -> None:
    made = pool(aws, kind)
    platform = aws.platform(made)
    for status, error, code, says in REFUSALS:
        for action in BUYS:
            aws.proxy.errors[action] = Refusal(error, "no", status)
        decision = buy(made, 0, 2, f"refused-{made.name}-{error}")
        if not code:  # nobody knows what it has done
            with pytest.raises(PlatformError, match=says):
                submitted(platform, decision)
        else:
            answer = submitted(platform, decision)
            assert isinstance(answer, Rejected)
            assert (answer.code, says in answer.detail) == (code, True), answer
        assert aws.size(made) == 0


def test_a_quota_is_told_from_lack_of_capacity(aws: Account) -> None:
    made = pool(aws, "fleet")
    aws.proxy.capacity[made.instance_type], aws.proxy.lacks = 1, "VcpuLimitExceeded"
    some = carried_out(aws.platform(made), buy(made, 0, 3, "quota"))
    assert isinstance(some, Failed)
    assert "VcpuLimitExceeded" in some.answer
    assert "raise the account's quota, or request fewer" in some.answer
    assert aws.size(made) == 1


def test_an_update_that_fails_later_is_withdrawn(aws: Account) -> None:
    made = pool(aws, "node_group", 1)
    aws.proxy.update_errors = [{"errorCode": "NodeCreationFailure", "errorMessage": "Limit of vCPUs exceeded"}]
    platform = aws.platform(made)
    handle = submitted(platform, buy(made, 1, 3, "late"))
    assert isinstance(handle, Handle)
    aws.proxy.errors["eks:UpdateNodegroupConfig"] = Refusal("ResourceInUseException", "in use", 409)
    looks = [platform.poll(handle) for _ in range(2)]
    assert [type(look) for look in looks] == [Running] * 2
    assert "setting its size to 1 again" in looks[1].answer
    assert aws.size(made) == 3
    failed = ended(platform, handle)
    assert isinstance(failed, Failed)
    assert "the update failed: NodeCreationFailure: Limit of vCPUs exceeded" in failed.answer
    assert "its size is set to 1 again, and EKS chooses which nodes go" in failed.answer
    assert aws.size(made) == 1


def test_the_clouds_own_bounds_and_cooldown_hold(aws: Account) -> None:
    made = aws.group(1, most=2)
    beyond = submitted(aws.platform(made), buy(made, 1, 3))
    assert isinstance(beyond, Rejected)
    assert "3 machines lie outside 0 to 2" in beyond.detail
    aws.proxy.cooldown_s = 60.0
    assert isinstance(carried_out(aws.platform(made), buy(made, 1, 2, "a")), Done)
    aws.asg.update_auto_scaling_group(AutoScalingGroupName=made.resource, MaxSize=4)
    wait = submitted(aws.platform(made), buy(made, 2, 3, "b"))
    assert isinstance(wait, Rejected)
    assert "ScalingActivityInProgress" in wait.detail


def test_machines_of_another_type_are_not_counted_at_the_price_of_this(aws: Account) -> None:
    group = aws.group(1, instance_type="p5.48xlarge")
    nodes = aws.node_group(1, instance_type="p5.48xlarge")
    for made in (group, nodes):
        answer = aws.platform(made).observe(buy(made, 1, 2))
        assert isinstance(answer, Rejected)
        assert "its price is that of p5.48xlarge" in answer.detail


def test_somebody_else_has_the_last_word(aws: Account) -> None:
    made = pool(aws, "group", 1)
    platform = aws.platform(made)
    decision = buy(made, 1, 3, "ours")
    before_it = claimed(platform, decision)
    handle = submitted(platform, decision)
    assert isinstance(handle, Handle)
    other = aws.platform(made)
    assert isinstance(carried_out(other, buy(made, 3, 5, "theirs")), Done)
    assert isinstance(platform.poll(handle), Superseded)
    lost = settle(aws.platform(made), decision, before_it)
    assert isinstance(lost, Handle)
    failed = other.poll(lost)
    assert isinstance(failed, Failed)
    assert failed.answer.startswith("unknown outcome: ")
    assert aws.size(made) == 5


def test_a_pool_that_changed_since_it_was_looked_at_is_judged_again(aws: Account) -> None:
    made = pool(aws, "group", 1)
    platform = aws.platform(made)
    decision = buy(made, 1, 2, "stale")
    observed = platform.observe(decision)
    assert not isinstance(observed, Rejected)
    aws.interrupt(made)
    answer = platform.submit(decision, observed, dry_run=False)
    assert isinstance(answer, Rejected)
    assert answer.code == "conflict"


def test_what_all_pools_cost_is_shown_where_more_is_asked_for(aws: Account) -> None:
    one, two = pool(aws, "group", 2), pool(aws, "group", 1)
    platform = aws.platform(one, two)
    more, less = platform.observe(buy(one, 2, 3)), platform.observe(buy(one, 2, 1))
    assert not isinstance(more, Rejected)
    assert not isinstance(less, Rejected)
    assert (more.cost_usd_per_hour, less.cost_usd_per_hour) == (96.0, None)


def test_from_the_topic_to_the_cloud(
    aws: Account, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    made = aws.fleet("spot")
    carried_out_by_the_service(embedded_broker, tmp_path, aws.entry(made, budget_usd_per_hour=100.0), made, aws)
