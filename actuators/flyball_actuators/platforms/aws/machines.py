"""EC2 instances and their tags."""

from collections.abc import Sequence
from typing import Any

from flyball_actuators.platforms.aws.api import Aws
from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.pools.victims import Machine

POOL, DECISION = "flyball.dev/pool", "flyball.dev/decision"
LEAVING, COUNT = "flyball.dev/leaving", "flyball.dev/leaving-count"
ALIVE = ("pending", "running")
GONE = ("terminated",)
_MOST_VALUES = 200
"""EC2 refuses a filter with more values (``FilterLimitExceeded``)."""


class Instances(list[dict[str, Any]]):
    """Instances as EC2 describes them."""

    @property
    def alive(self) -> "Instances":
        """Instances that run or are starting."""
        return Instances(one for one in self if one["State"]["Name"] in ALIVE)

    @property
    def running(self) -> "Instances":
        """Instances that run."""
        return Instances(one for one in self if one["State"]["Name"] == "running")

    @property
    def left(self) -> "Instances":
        """Instances that are not terminated yet."""
        return Instances(one for one in self if one["State"]["Name"] not in GONE)

    @property
    def ids(self) -> list[str]:
        """Sorted ids."""
        return sorted(str(one["InstanceId"]) for one in self)


def instances(aws: Aws, key: str, value: str) -> Instances | Rejected:
    """Instances in any state with a tag."""
    return _read(aws, {"Name": f"tag:{key}", "Values": [value]})


def by_id(aws: Aws, ids: Sequence[str]) -> Instances | Rejected:
    """Instances with these ids that EC2 knows; filtered, because one unknown id would fail the whole call."""
    found = Instances()
    for first in range(0, len(ids), _MOST_VALUES):
        part = _read(aws, {"Name": "instance-id", "Values": list(ids[first : first + _MOST_VALUES])})
        if isinstance(part, Rejected):
            return part
        found += part
    return found


def _read(aws: Aws, condition: dict[str, Any]) -> Instances | Rejected:
    found = aws.all("ec2", "describe_instances", "Reservations", Filters=[condition])
    if isinstance(found, Rejected):
        return found
    return Instances(one for reservation in found for one in reservation["Instances"])


def tag_of(instance: dict[str, Any], key: str) -> str:
    """Value of a tag, empty without one."""
    return next((str(tag["Value"]) for tag in instance.get("Tags", ()) if tag["Key"] == key), "")


def machine(instance: dict[str, Any], *, protected: bool = False) -> Machine:
    """An instance as a candidate for return."""
    dns = str(instance.get("PrivateDnsName") or "")
    names = {instance["InstanceId"], dns, dns.partition(".")[0], tag_of(instance, "Name")} - {""}
    return Machine(
        id=instance["InstanceId"],
        names=frozenset(names),
        ready=instance["State"]["Name"] == "running",
        started=str(instance.get("LaunchTime", "")),
        protected=protected,
        leaving=tag_of(instance, LEAVING),
    )


def mark_leaving(aws: Aws, ids: Sequence[str], decision: str) -> Rejected | None:
    """Tag machines before any is returned; each tag includes their number."""
    tags = [{"Key": LEAVING, "Value": decision}, {"Key": COUNT, "Value": str(len(ids))}]
    answer = aws.call("ec2", "create_tags", Resources=list(ids), Tags=tags)
    return answer if isinstance(answer, Rejected) else None


def why_gone(instance: dict[str, Any]) -> str:
    """EC2's reason why an instance ended."""
    reason: dict[str, Any] = instance.get("StateReason") or {}
    return str(reason.get("Code") or reason.get("Message") or instance["State"]["Name"])
