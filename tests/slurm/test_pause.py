"""Jobs are suspended for a pause, on a real cluster with a partition that allows it."""

from typing import Any

import msgspec
import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.actuators.samples import preempt, scale
from tests.slurm.cluster import SlurmCluster

from flyball_actuators.platforms import Done, Handle, Superseded

pytestmark = pytest.mark.integration


def pause(id_: str = "pause", **changes: Any) -> Any:
    """A pause for an hour, without a checkpoint."""
    return preempt(id_, workload="night", before=2, after=0, checkpoint=False, until_s=3600, **changes)


def test_a_pause_suspends_where_the_partition_allows_it(pausable: SlurmCluster) -> None:
    here = pausable.submit("night", "-p", "pausable", "--no-requeue")
    there = pausable.submit("night")
    node = pausable.show(here)["NodeList"]
    platform = pausable.platform(partitions=("ml", "pausable"))
    plan = submitted(platform, pause(), dry_run=True)
    assert isinstance(plan, Handle)
    assert "would be suspended, or requeued and held" in plan.answer
    handle = submitted(platform, pause())
    assert isinstance(handle, Handle)
    found = pausable.platform(partitions=("ml", "pausable")).find(pause(), None)  # another process
    assert isinstance(found, Handle)
    done = ended(pausable.platform(partitions=("ml", "pausable")), found)
    assert isinstance(done, Done), done
    assert (done.observed.replicas, done.observed.ready, done.observed.suspended) == (0, 0, True)
    shown = pausable.show(here)
    assert (shown["JobState"], shown["NodeList"], shown["Restarts"]) == ("SUSPENDED", node, "0")
    assert (pausable.show(there)["JobState"], pausable.show(there)["Restarts"]) == ("PENDING", "1")
    goes_on = carried_out(platform, scale("go", workload="night", before=0, after=2))
    assert isinstance(goes_on, Done), goes_on
    assert (pausable.show(here)["JobState"], pausable.show(here)["Restarts"]) == ("RUNNING", "0")
    assert pausable.job_log(here) == ["start 0"], "it was neither ended nor asked for a checkpoint"
    assert isinstance(platform.poll(handle), Superseded)
    pausable.run("scontrol", "suspend", str(here))  # by another
    lost = submitted(platform, scale("same", workload="night", before=1, after=1))
    assert isinstance(lost, Handle)
    assert pausable.show(here)["JobState"] == "SUSPENDED"


def test_what_is_to_make_room_or_to_write_a_checkpoint_is_not_suspended(pausable: SlurmCluster) -> None:
    job = pausable.submit("night", "-p", "pausable")
    platform = pausable.platform(partitions=("pausable",))
    room = msgspec.structs.replace(pause("room"), replicas_before=1, beneficiary="chat")
    assert isinstance(carried_out(platform, room), Done)
    assert (pausable.show(job)["JobState"], pausable.show(job)["Restarts"]) == ("PENDING", "1")
