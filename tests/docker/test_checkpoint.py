"""Checkpoints, on the double: CRIU does not work on every kernel."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.actuators.carry_out import carried_out
from tests.actuators.loop import PARTITIONS, config_for, ended, publish, running, wait_for
from tests.actuators.rows import observed_row
from tests.actuators.samples import preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.docker.double import Double
from tests.docker.machine import Machine

from flyball_actuators.platforms import Done
from flyball_contracts.config import PlatformConfig


@pytest.fixture
def double() -> Double:
    return Double(experimental=True)


@pytest.fixture
def machine(double: Double) -> Iterator[Machine]:
    with TemporaryDirectory() as place:
        made = Machine(double, Path(place))
        made.make("train", workload="train", Labels={"flyball.dev/preempt": "checkpoint"})
        yield made
        made.clear()


def test_work_goes_on_from_its_checkpoint_once(double: Double, machine: Machine) -> None:
    for i in range(2):
        now_ns = time.time_ns()
        stop = preempt(f"stop-{i}", workload="train", before=1, after=0, time_ns=now_ns)
        assert isinstance(carried_out(machine.platform(), stop), Done)
        assert machine.states("train") == {"train": "exited"}
        resume = scale(f"go-{i}", workload="train", before=0, after=1, time_ns=now_ns)
        assert isinstance(carried_out(machine.platform(), resume), Done)
        assert machine.shown("train")["saved"] == {}  # it must not bring back old work a second time
    assert [what for what, _ in double.events] == ["create", "start", *["checkpoint", "restore"] * 2]


@pytest.mark.integration
def test_a_checkpoint_is_made_by_a_decision_from_the_topic(
    double: Double, machine: Machine, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    config = config_for(
        bootstrap, "hands", mode="live", ledger=str(tmp_path / "ledger"), allow=("*",),
        platforms=(PlatformConfig(driver="docker", cells=("cell-a",), url=machine.proxy.url, poll_s=0.1),),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    with running(config, clock=time.time_ns):
        publish(bootstrap, spec("train"))
        publish(bootstrap, preempt("save", workload="train", before=1, after=0, time_ns=time.time_ns()))
        wait_for(ended(bootstrap, 1), "it is saved")
    assert [what for what, _ in double.events] == ["create", "start", "checkpoint"]
    assert observed_row(bootstrap, "docker").checkpoints == 1
