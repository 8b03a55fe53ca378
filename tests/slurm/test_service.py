"""From a decision on the topic to an effect that Slurm shows: broker, guard, ledger and driver together."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.actuators.carry_out import carried_out
from tests.actuators.loop import PARTITIONS, config_for, ended, of, publish, running, statuses_of, without_effect
from tests.actuators.rows import observed_row
from tests.actuators.samples import CELL, NOW, check, inventory, migrate, preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.readme.blocks import inline, placed, run
from tests.slurm.cluster import SlurmCluster

from flyball_actuators.platforms import Done
from flyball_contracts.config import CheckConfig, PlatformConfig
from flyball_contracts.records import Allocation

pytestmark = pytest.mark.integration


def test_all_commands_reach_slurm(
    cluster: SlurmCluster, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    sick = cluster.nodes[-1]
    cluster.run("scontrol", "update", f"NodeName={sick}", "State=DRAIN", "Reason=flyball m0")
    chat, spare = cluster.submit("chat"), cluster.submit("chat", "--hold", waits=True)
    train = cluster.submit("train", signal="B:USR1@1")
    node = cluster.show(chat)["NodeList"]
    name = f"{chat}.{node}"
    older, newer = cluster.submit("batch"), cluster.submit("batch")  # without a name, the newer one would go
    victim = f"{older}.{cluster.show(older)['NodeList']}"
    placed = msgspec.structs.replace(inventory(node), allocations=(Allocation(workload="chat", replica=name),))
    publish(bootstrap, spec(), spec("train"), spec("batch"), placed, inventory(sick))
    config = config_for(
        bootstrap, "hands", mode="live", ledger=str(tmp_path / "ledger"), allow=("*", "node:*"),
        platforms=(PlatformConfig(**cluster.entry(cells=(CELL,), poll_s=0.2, check=CheckConfig(command=("true",)))),),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    before = cluster.queue()
    with running(without_effect(config)):
        publish(bootstrap, scale("plan", before=1, after=2))
        publish(bootstrap, preempt("plan-2", workload="batch", before=2, after=1, victims=(victim,)))
        cluster.until(ended(bootstrap, 2), "both are planned")
    assert cluster.queue() == before
    with running(config):
        publish(bootstrap, scale("up", before=1, after=2), preempt("stop", workload="train", before=1, after=0))
        publish(bootstrap, preempt("less", workload="batch", before=2, after=1, victims=(victim,), checkpoint=False))
        publish(bootstrap, check("well", node=sick))
        cluster.until(ended(bootstrap, 6), "all four are over")
        publish(bootstrap, migrate("move", replica=name, from_node=node, time_ns=NOW + 1))
        cluster.until(ended(bootstrap, 7), "the migration is over")
        publish(bootstrap, preempt("stop", workload="train", before=1, after=0))  # delivered twice
        time.sleep(0.5)
    for decision in ("up", "stop", "less", "move", "well"):
        assert statuses_of(bootstrap, decision)[:3] == ["accepted", "running", "done"]
    assert of(bootstrap, "stop", "running").driver == "slurm"
    assert "sent USR1" in of(bootstrap, "stop", "running").answer
    assert cluster.job_log(train) == ["start 0", "checkpoint", "end"]
    assert (cluster.show(train)["JobState"], cluster.show(train)["Restarts"]) == ("PENDING", "1")
    assert cluster.show(spare)["JobState"] == "RUNNING"
    assert cluster.show(chat)["NodeList"] not in (node, "")
    assert "flyball move" in cluster.state(node)
    assert "drain" not in cluster.state(sick)
    assert [cluster.show(job)["JobState"] for job in (older, newer)] == ["PENDING", "RUNNING"]
    less = of(bootstrap, "less", "done").observed
    assert less is not None
    assert less.nodes == {victim: ""}
    row = observed_row(bootstrap, "slurm")
    assert row.verbs == {"Check": (1, 1), "Migrate": (1, 1), "Preempt": (2, 2), "Scale": (1, 1)}
    assert (row.planned, row.victims, row.checkpoints, row.gang) == (2, (1, 1), 1, (1, 1))


def test_what_the_readme_says_of_slurm(cluster: SlurmCluster, tmp_path: Path) -> None:
    (resume,) = inline("scontrol update NodeName=N")
    (hold,) = inline("sbatch --hold")
    (option,) = inline("#SBATCH --signal")
    (comment,) = inline("flyball.dev/checkpoint=")
    node = cluster.nodes[0]
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    path = f"{cluster.commands}:{os.environ['PATH']}"
    run(placed(resume, {"NodeName=N": f"NodeName={node}"}), tmp_path, PATH=path, SLURM_CONF=str(cluster.conf))
    cluster.until(lambda: "drain" not in cluster.state(node), "the drained node is given back")
    in_script = cluster.submit("chat", signal=placed(option, {"#SBATCH --signal=": "", "@60": "@1"}))
    in_comment = cluster.submit("train", f"--comment={placed(comment, {'@60': '@1'})}")
    spare = cluster.submit("chat", hold.removeprefix("sbatch "), waits=True)
    platform = cluster.platform()
    assert isinstance(carried_out(platform, scale("up", before=1, after=2)), Done)
    assert cluster.show(spare)["JobState"] == "RUNNING"
    for job, decision in (
        (in_script, preempt("a", before=2, after=0)),
        (in_comment, preempt("b", workload="train", before=1, after=0)),
    ):
        assert isinstance(carried_out(platform, decision), Done)
        assert cluster.job_log(job) == ["start 0", "checkpoint", "end"]
