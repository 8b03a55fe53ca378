"""A broker for one actuator: topics, one workload, two nodes."""

from collections.abc import Callable

import pytest
from tests.actuators.loop import PARTITIONS, publish
from tests.actuators.samples import inventory, spec
from tests.brokers.embedded import EmbeddedBroker


@pytest.fixture
def bootstrap(embedded_broker: Callable[..., EmbeddedBroker]) -> str:
    address = embedded_broker(PARTITIONS).bootstrap
    publish(address, spec(), inventory(replicas=4), inventory("n2"))
    return address
