"""Rights in clouds: the calls of drivers ``aws``, ``gcp`` and ``azure``, as their policies and roles."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from flyball_actuators.platforms.aws.machines import DECISION, POOL

_OF_POOL = {"StringLike": {f"aws:ResourceTag/{POOL}": "*"}}
_LAUNCH = ("ec2:CreateFleet", "ec2:RunInstances")
_EC2 = "arn:aws:ec2:*:*:{}/*"
_LAUNCHED = (_EC2.format("fleet"), _EC2.format("instance"))


class Statement(NamedTuple):
    """``actions`` on ``resources``, under the conditions ``when`` by operator, key and values."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    when: Mapping[str, Mapping[str, Any]] = {}


AWS = (
    Statement(
        "Look",
        (
            "autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities", "ec2:DescribeInstances",
            "eks:DescribeNodegroup", "eks:DescribeUpdate",
        ),
    ),
    Statement(
        "ScaleWhatIsTaggedAsAPool",
        (
            "autoscaling:CreateOrUpdateTags", "autoscaling:SetDesiredCapacity",
            "autoscaling:TerminateInstanceInAutoScalingGroup", "eks:TagResource", "eks:UpdateNodegroupConfig",
        ),
        when=_OF_POOL,
    ),
    Statement(
        "LaunchWhatIsTaggedAsAPool", _LAUNCH, _LAUNCHED,
        {"StringLike": {f"aws:RequestTag/{POOL}": "*", f"aws:RequestTag/{DECISION}": "*"}},
    ),
    Statement("LaunchFromTemplatesTaggedAsAPool", _LAUNCH, (_EC2.format("launch-template"),), _OF_POOL),
    Statement(
        "LaunchWithWhatTemplatesName",
        _LAUNCH,
        (
            "arn:aws:ec2:*::image/*", "arn:aws:ec2:*::snapshot/*",
            *(
                _EC2.format(kind)
                for kind in (
                    "capacity-reservation", "key-pair", "network-interface", "placement-group", "security-group",
                    "spot-instances-request", "subnet", "volume",
                )
            ),
        ),
    ),
    Statement(
        "PassTheRoleOfALaunchTemplate", ("iam:PassRole",), ("arn:aws:iam::*:role/flyball/*",),
        {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
    ),
    Statement(
        "TagAtLaunch", ("ec2:CreateTags",), _LAUNCHED,
        {"StringEquals": {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}},
    ),
    Statement(
        "MarkAndReturnWhatIsTaggedAsAPool", ("ec2:CreateTags", "ec2:TerminateInstances"), (_EC2.format("instance"),),
        _OF_POOL,
    ),
)  # fmt: skip
"""Tests compare them with the calls, on the resources that AWS's service authorization reference lists for each."""
GCP = (
    "compute.instanceGroupManagers.get",
    "compute.instanceGroupManagers.list",
    "compute.instanceGroupManagers.update",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
)
AZURE = (
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Compute/virtualMachineScaleSets/delete/action",
    "Microsoft.Compute/virtualMachineScaleSets/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
    "Microsoft.Compute/virtualMachineScaleSets/write",
)


def aws_policy() -> dict[str, Any]:
    """The identity policy."""
    statements: list[dict[str, Any]] = []
    for one in AWS:
        statement: dict[str, Any] = {"Sid": one.sid, "Effect": "Allow", "Action": [*one.actions]}
        statement["Resource"] = one.resources[0] if len(one.resources) == 1 else [*one.resources]
        statements.append(statement | ({"Condition": one.when} if one.when else {}))
    return {"Version": "2012-10-17", "Statement": statements}


def gcp_role() -> dict[str, Any]:
    """The custom role, as ``gcloud iam roles create`` reads it."""
    return {
        "title": "Flyball actuator",
        "description": "Resizes managed instance groups, and deletes chosen machines of them.",
        "stage": "GA",
        "includedPermissions": [*GCP],
    }


def azure_role() -> dict[str, Any]:
    """The custom role, as ``az role definition create`` reads it."""
    return {
        "Name": "Flyball actuator",
        "IsCustom": True,
        "Description": "Resizes virtual machine scale sets, and deletes chosen machines of them.",
        "Actions": [*AZURE],
        "NotActions": [],
        "AssignableScopes": ["/subscriptions/SUBSCRIPTION/resourceGroups/GROUP"],
    }
