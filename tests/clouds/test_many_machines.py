"""Groups of hundreds of machines, within the limits of EC2's calls; no cloud is needed."""

from typing import Any, cast

import pytest

from flyball_actuators.platforms import Rejected
from flyball_actuators.platforms.aws.api import Aws, refused
from flyball_actuators.platforms.aws.machines import by_id


class Ec2:
    """EC2 refuses filters of more than 200 values; it knows all instances but ``gone``."""

    def all(self, service: str, operation: str, key: str, **parameters: Any) -> list[Any] | Rejected:
        (condition,) = parameters["Filters"]
        if len(condition["Values"]) > 200:
            return refused("FilterLimitExceeded", "the maximum number of filter values on a single call is 200")
        known = [{"InstanceId": id_, "State": {"Name": "running"}} for id_ in condition["Values"] if id_ != "gone"]
        return [{"Instances": known}]


@pytest.mark.parametrize("count", [0, 1, 200, 201, 1_250])
def test_all_machines_of_a_large_group_are_read(count: int) -> None:
    ids = [f"i-{n:04d}" for n in range(count)]
    found = by_id(cast(Aws, Ec2()), [*ids, "gone"])
    assert not isinstance(found, Rejected)
    assert found.ids == ids
