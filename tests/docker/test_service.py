"""From a decision on the topic to containers that run: broker, guard, ledger and driver together, on a real engine."""

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.actuators.carry_out import carried_out
from tests.actuators.loop import (
    PARTITIONS,
    config_for,
    ended,
    of,
    publish,
    running,
    statuses_of,
    wait_for,
    without_effect,
)
from tests.actuators.rows import observed_row
from tests.actuators.samples import preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.docker.engine import DockerEngine
from tests.docker.machine import Machine
from tests.docker.proxy import forward
from tests.readme.blocks import lines, placed, run

from flyball_actuators.platforms import Done
from flyball_contracts.config import PlatformConfig

pytestmark = pytest.mark.integration


def test_a_container_that_was_run_as_the_readme_shows_is_scaled(engine: DockerEngine, tmp_path: Path) -> None:
    engine.load("my-model:latest", "sleep", "600")
    (line,) = lines("docker run")
    # The engine of these tests has no networks.
    line = placed(line, {"docker run": f"{engine.client} --host unix://{engine.socket} run --network none"})
    run(line, tmp_path)
    with TemporaryDirectory(prefix="gate") as place:
        machine = Machine(forward(str(engine.socket)), Path(place))
        try:
            done = carried_out(machine.platform(), scale("up", before=1, after=2, time_ns=time.time_ns()))
            assert isinstance(done, Done), done
            assert machine.running() == 2
        finally:
            machine.clear()


def test_containers_follow_decisions(
    engine: DockerEngine, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    with TemporaryDirectory(prefix="gate") as place:
        machine = Machine(forward(str(engine.socket)), Path(place))
        machine.make("chat")
        publish(bootstrap, spec())
        platform = PlatformConfig(driver="docker", cells=("cell-a",), url=machine.proxy.url, poll_s=0.1)
        config = config_for(
            bootstrap, "hands", mode="live", ledger=str(tmp_path / "ledger"), platforms=(platform,), allow=("*",),
            kill_switch=str(tmp_path / "stop"),
        )  # fmt: skip
        now_ns = time.time_ns()
        volumes = machine.call("GET", "/volumes")[1]
        with running(without_effect(config), clock=time.time_ns):
            publish(bootstrap, scale("plan", before=1, after=3, time_ns=now_ns))
            wait_for(ended(bootstrap, 1), "it is planned")
        assert (machine.states(), machine.call("GET", "/volumes")[1]) == ({"chat": "running"}, volumes)
        with running(config, clock=time.time_ns):
            publish(bootstrap, scale("up", before=1, after=3, time_ns=now_ns))
            wait_for(ended(bootstrap, 2), "three run")
            assert machine.running() == 3
            # Without a name, a copy would go.
            publish(
                bootstrap, preempt("down", before=3, after=2, victims=("chat",), time_ns=now_ns + 1, checkpoint=False)
            )
            wait_for(ended(bootstrap, 3), "two run")
            assert machine.state("chat") == "exited"
            publish(bootstrap, scale("up", before=1, after=3, time_ns=now_ns))  # delivered twice
            time.sleep(0.5)
        assert machine.running() == 2
        machine.clear()
    for decision in ("up", "down"):
        assert statuses_of(bootstrap, decision)[:3] == ["accepted", "running", "done"]
    assert of(bootstrap, "up", "running").driver == "docker"
    row = observed_row(bootstrap, "docker")
    assert (row.verbs, row.planned, row.victims) == ({"Preempt": (1, 1), "Scale": (1, 1)}, 1, (1, 1))
