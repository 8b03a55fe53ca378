"""The actuator on a real Apache Kafka: joining, compacted topics, commits, and a broker that is killed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.actuators.loop import PARTITIONS, FileDriver, committed, config_for, publish, running, said, wait_for
from tests.actuators.samples import NOW, S, inventory, scale, spec

from flyball_streams.broker import RealKafka

pytestmark = pytest.mark.integration


@pytest.fixture
def kafka(kafka_jars: Path) -> Iterator[RealKafka]:
    with RealKafka(PARTITIONS, jars=kafka_jars) as broker:
        yield broker


def test_every_decision_has_one_effect_and_a_last_word(
    kafka: RealKafka, unique: Callable[[str], str], tmp_path: Path
) -> None:
    address, group, driver = kafka.bootstrap, unique("actuator"), FileDriver(tmp_path / "effects")
    publish(address, spec(), inventory(replicas=4))
    config = config_for(address, group, mode="live", ledger=str(tmp_path / "ledger"))
    with running(config, driver):
        publish(address, scale("d1"), scale("d1"), scale("bad", after=99))
        wait_for(lambda: committed(address, group) == 3, "the first commits")
        kafka.set_down()
        kafka.set_up()
        publish(address, scale("d2", time_ns=NOW + S))
        wait_for(lambda: committed(address, group) == 4, "the commit after the broker's crash")
    with running(config, driver):
        publish(address, scale("d2", time_ns=NOW + S), scale("d3", time_ns=NOW + 2 * S))
        wait_for(lambda: committed(address, group) == 6, "the commits of the second run")
    assert driver.effects() == ["d1", "d2", "d3"]
    assert said(address, "d1") == ["accepted", "done", "refused duplicate"]
    assert said(address, "bad") == ["refused invalid"]
    assert said(address, "d3") == ["accepted", "done"]
    assert said(address, "d2")[:3] == ["accepted", "done", "refused duplicate"]
