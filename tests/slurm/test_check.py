"""A drained node is checked in a reservation, and is open or drained afterwards, on a real cluster."""

from typing import Any

import pytest
from tests.actuators.carry_out import ended, submitted
from tests.actuators.samples import check
from tests.slurm.cluster import SlurmCluster

from flyball_actuators.platforms import Done, Failed, Handle, Rejected
from flyball_contracts.config import CheckConfig

pytestmark = pytest.mark.integration
NODE = "gpu1"


def drained(cluster: SlurmCluster, reason: str = "flyball m1") -> None:
    cluster.run("scontrol", "update", f"NodeName={NODE}", "State=DRAIN", f"Reason={reason}")


def platform(cluster: SlurmCluster, script: str) -> Any:
    return cluster.platform(check=CheckConfig(command=("sh", "-c", script)))


def reservations(cluster: SlurmCluster) -> str:
    return cluster.run("scontrol", "-o", "show", "reservation").replace("No reservations in the system", "").strip()


def test_a_node_that_passes_takes_jobs_again(cluster: SlurmCluster) -> None:
    drained(cluster)
    on = platform(cluster, '[ "$FLYBALL_CHECK_GPUS" = 2 ] && [ "$SLURM_JOB_NODELIST" = gpu1 ]')
    plan = submitted(on, check(node=NODE), dry_run=True)
    assert isinstance(plan, Handle), plan
    assert "would run sh -c" in plan.answer
    assert not reservations(cluster)
    assert "drained" in cluster.state(NODE)
    handle = submitted(on, check(node=NODE))
    assert isinstance(handle, Handle), handle
    again = on.find(check(node=NODE), None)
    assert isinstance(again, Handle)
    done = ended(platform(cluster, "other"), again)
    assert isinstance(done, Done), done
    assert done.observed.suspended is False
    assert not reservations(cluster)
    cluster.until(lambda: cluster.state(NODE).startswith("idle"), "the node is open")


def test_a_node_that_fails_stays_drained(cluster: SlurmCluster) -> None:
    drained(cluster)
    on = platform(cluster, "exit 3")
    handle = submitted(on, check(node=NODE))
    assert isinstance(handle, Handle), handle
    failed = ended(on, handle)
    assert isinstance(failed, Failed), failed
    assert "ended as FAILED; its output is in /tmp/flyball-check-" in failed.answer
    assert not reservations(cluster)
    assert cluster.state(NODE).startswith("drained flyball c1: ")


def test_nobody_else_lands_on_a_node_while_it_is_checked(cluster: SlurmCluster) -> None:
    drained(cluster)
    on = platform(cluster, "while :; do sleep 0.1; done")
    handle = submitted(on, check(node=NODE))
    assert isinstance(handle, Handle), handle
    cluster.until(lambda: NODE in cluster.run("squeue", "-h", "-t", "running", "-o", "%N"), "the check runs")
    other = cluster.submit("chat", f"--nodelist={NODE}", waits=True)
    cluster.until(lambda: "eserved" in cluster.show(other)["Reason"], "it is kept out by the reservation")
    cluster.run("scancel", "--name", cluster.run("squeue", "-h", "-t", "running", "-o", "%j").strip())
    failed = ended(on, handle)
    assert isinstance(failed, Failed), failed
    assert cluster.state(NODE).startswith("drained flyball c1: ")


@pytest.mark.parametrize(
    ("script", "status", "state"), [("true", Done, "idle"), ("exit 3", Failed, "drained flyball c1: ")]
)
def test_a_node_that_is_open_is_drained_only_if_it_fails(
    cluster: SlurmCluster, script: str, status: type, state: str
) -> None:
    """Such as one that a gang has left which hung there."""
    assert cluster.state(NODE).startswith("idle")
    on = platform(cluster, script)
    handle = submitted(on, check(node=NODE))
    assert isinstance(handle, Handle), handle
    assert isinstance(ended(on, handle), status)
    assert not reservations(cluster)
    cluster.until(lambda: cluster.state(NODE).startswith(state), f"the node is {state}")


@pytest.mark.parametrize(("reason", "words"), [("broken fan", "was not drained by Flyball: 'broken fan'")])
def test_what_others_drained_is_theirs(cluster: SlurmCluster, reason: str, words: str) -> None:
    drained(cluster, reason)
    refused = submitted(platform(cluster, "true"), check(node=NODE))
    assert isinstance(refused, Rejected)
    assert refused.code == "conflict"
    assert words in refused.detail
