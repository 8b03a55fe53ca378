"""From a decision on the topic to an effect that Slurm shows: broker, guard, ledger and driver together."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.actuators.loop import PARTITIONS, config_for, ended, of, publish, running, statuses_of
from tests.actuators.rows import observed_row
from tests.actuators.samples import NOW, inventory, migrate, preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.slurm.cluster import SlurmCluster

from flyball_contracts.config import PlatformConfig
from flyball_contracts.records import Allocation

pytestmark = pytest.mark.integration


def test_all_three_commands_reach_slurm(
    cluster: SlurmCluster, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    chat, spare = cluster.submit("chat"), cluster.submit("chat", "--hold", waits=True)
    train = cluster.submit("train", signal="B:USR1@1")
    node = cluster.show(chat)["NodeList"]
    name = f"{chat}.{node}"
    placed = msgspec.structs.replace(inventory(node), allocations=(Allocation(workload="chat", replica=name),))
    publish(bootstrap, spec(), spec("train"), placed)
    config = config_for(
        bootstrap, "hands", mode="live", ledger=str(tmp_path / "ledger"), allow=("*",),
        platforms=(PlatformConfig(**cluster.entry(poll_s=0.2)),), kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    with running(config):
        publish(bootstrap, scale("up", before=1, after=2), preempt("stop", workload="train", before=1, after=0))
        cluster.until(ended(bootstrap, 2), "both are over")
        publish(bootstrap, migrate("move", replica=name, from_node=node, time_ns=NOW + 1))
        cluster.until(ended(bootstrap, 3), "the migration is over")
        publish(bootstrap, preempt("stop", workload="train", before=1, after=0))  # delivered twice
        time.sleep(0.5)
    for decision in ("up", "stop", "move"):
        assert statuses_of(bootstrap, decision)[:3] == ["accepted", "running", "done"]
    assert of(bootstrap, "stop", "running").driver == "slurm"
    assert "sent USR1" in of(bootstrap, "stop", "running").answer
    assert cluster.job_log(train) == ["start 0", "checkpoint", "end"]
    assert (cluster.show(train)["JobState"], cluster.show(train)["Restarts"]) == ("PENDING", "1")
    assert cluster.show(spare)["JobState"] == "RUNNING"
    assert cluster.show(chat)["NodeList"] not in (node, "")
    assert "flyball move" in cluster.state(node)
    assert observed_row(bootstrap, "slurm").verbs == {"Migrate": (1, 1), "Preempt": (1, 1), "Scale": (1, 1)}
