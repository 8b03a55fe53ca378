"""Driver slurm on a real cluster: what it does is judged by what Slurm and the jobs themselves show."""

from typing import Any

import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.actuators.samples import migrate, preempt, scale
from tests.slurm.cluster import SlurmCluster

from flyball_actuators.platforms import Done, Failed, Handle, PlatformError, Rejected, Running, Superseded
from flyball_actuators.platforms.calls import StoppedError, recording_calls
from flyball_actuators.platforms.slurm import count, migrate as migrations
from flyball_actuators.platforms.slurm.effects import set_mark

pytestmark = pytest.mark.integration


def rejected(answer: Any, code: str, *words: str) -> None:
    assert isinstance(answer, Rejected), answer
    assert answer.code == code, answer
    for word in words:
        assert word in answer.detail


def test_a_job_writes_its_checkpoint_waits_and_goes_on(cluster: SlurmCluster) -> None:
    job = cluster.submit("chat", "--comment=grant 7", signal="B:USR1@2")
    platform = cluster.platform()
    handle = submitted(platform, preempt(before=1, after=0))
    assert isinstance(handle, Handle)
    assert "sent USR1" in handle.answer
    assert isinstance(platform.poll(handle), Running)  # it has 2 s
    assert cluster.show(job)["JobState"] == "RUNNING"
    done = ended(cluster.platform(), handle)  # by another process, which knows the name alone
    assert isinstance(done, Done)
    assert (done.observed.replicas, done.observed.ready, done.observed.suspended) == (0, 0, True)
    shown = cluster.show(job)
    assert (shown["JobState"], shown["Priority"], shown["Restarts"], shown["NodeList"]) == ("PENDING", "0", "1", "")
    assert shown["Comment"].startswith("grant 7 flyball:p1:stop.0.1@")  # what the comment had, stays
    assert cluster.job_log(job) == ["start 0", "checkpoint", "end"]
    assert isinstance(carried_out(platform, scale(before=0, after=1)), Done)
    assert cluster.show(job)["JobState"] == "RUNNING"
    cluster.until(lambda: cluster.job_log(job)[-1] == "start 1", "it goes on")
    assert platform.poll(handle) == platform.poll(handle)  # the old decision is not done again
    assert isinstance(platform.poll(handle), Superseded)
    assert cluster.show(job)["JobState"] == "RUNNING"


def test_nothing_more_is_done_once_everything_is_stopped(cluster: SlurmCluster) -> None:
    """The checkpoint's signal is sent, and the stop comes in the time that the job has for it; the job serves on."""
    job = cluster.submit("chat", signal="B:USR1@1")
    node = cluster.show(job)["NodeList"]
    platform = cluster.platform()
    handles: list[Handle] = []
    for command in (preempt(before=1, after=0), migrate(replica=f"{job}.{node}", from_node=node, from_device="GPU-1")):
        handle = submitted(platform, command)
        assert isinstance(handle, Handle)
        handles.append(handle)
        with recording_calls(lambda _: None, lambda: "ann stopped everything"):
            with pytest.raises(StoppedError, match="ann stopped everything"):
                ended(platform, handle)
            with pytest.raises(StoppedError):
                submitted(platform, scale("more", before=1, after=0))
        assert (cluster.show(job)["JobState"], cluster.show(job)["Restarts"]) == ("RUNNING", "0")
    assert isinstance(ended(platform, handles[-1]), Done)
    assert cluster.show(job)["Restarts"] == "1"


def test_what_writes_its_checkpoint_is_taken_back_and_what_has_stopped_is_not(cluster: SlurmCluster) -> None:
    jobs = [cluster.submit("chat", "--comment=grant 7", signal="B:USR1@60") for _ in range(2)]
    node = cluster.show(jobs[0])["NodeList"]
    platform = cluster.platform()
    commands = (
        preempt(before=2, after=0),
        migrate(replica=f"{jobs[0]}.{node}", from_node=node, from_device=""),
    )
    for command in commands:
        handle = submitted(platform, command)
        assert isinstance(handle, Handle)
        assert isinstance(platform.poll(handle), Running)
        for _ in range(2):  # whoever goes on may say it again
            assert isinstance(cluster.platform().take_back(handle), Failed)
        for job in jobs:
            shown = cluster.show(job)
            assert (shown["JobState"], shown["Restarts"], shown["Comment"]) == ("RUNNING", "0", "grant 7")
        assert isinstance(platform.poll(handle), Superseded), "nothing of it is done later"
        assert {cluster.show(job)["JobState"] for job in jobs} == {"RUNNING"}
    cluster.submit("embed")
    gone = submitted(platform, preempt("p2", workload="embed", before=1, after=0, checkpoint=False))
    assert isinstance(gone, Handle)
    assert platform.take_back(gone) is None
    assert isinstance(ended(platform, gone), Done)
    back = submitted(platform, scale("s1", workload="embed", before=0, after=1))
    assert isinstance(back, Handle)
    assert platform.take_back(back) is None
    assert isinstance(ended(platform, back), Done)


def test_the_latest_go_first_and_no_more_come_back_than_there_are(cluster: SlurmCluster) -> None:
    jobs = [cluster.submit("chat") for _ in range(3)]
    waiting = cluster.submit("chat", "--hold", waits=True)
    platform = cluster.platform()
    shown = platform.observe(scale())
    assert not isinstance(shown, Rejected)
    assert (shown.replicas, shown.ready, shown.suspended) == (3, 3, False)
    assert isinstance(carried_out(platform, scale("down", before=3, after=1)), Done)
    assert [cluster.show(job)["JobState"] for job in jobs] == ["RUNNING", "PENDING", "PENDING"]
    rejected(submitted(platform, scale("up", before=1, after=5)), "unsupported", "1 more than there are", "at most")
    assert isinstance(carried_out(platform, scale("up", before=1, after=3)), Done)
    assert [cluster.show(job)["JobState"] for job in (*jobs, waiting)] == ["RUNNING"] * 3 + ["PENDING"]


def test_the_victims_that_are_named_go(cluster: SlurmCluster) -> None:
    first, second = cluster.submit("chat"), cluster.submit("chat")
    node = cluster.show(first)["NodeList"]
    done = carried_out(cluster.platform(), preempt(before=2, after=1, victims=(f"{first}.{node}",)))
    assert isinstance(done, Done)
    assert (cluster.show(first)["JobState"], cluster.show(second)["JobState"]) == ("PENDING", "RUNNING")


def test_a_job_of_another_workload_is_not_touched(cluster: SlurmCluster) -> None:
    mine, theirs = cluster.submit("chat"), cluster.submit("bank")
    claiming = cluster.submit("chat", "--comment=flyball.dev/workload=bank")  # its comment counts, not its name
    elsewhere = cluster.submit("chat", "-p", "other")
    platform = cluster.platform()
    node = cluster.show(theirs)["NodeList"]
    name = f"{theirs}.{node}"
    rejected(platform.observe(preempt(before=1, after=0, victims=(name,))), "invalid", "not one of", "bank")
    rejected(platform.observe(migrate(replica=name, from_node=node)), "invalid", "not one of")
    rejected(platform.observe(preempt(before=1, after=0, victims=("chat-0",))), "invalid", "FLYBALL_REPLICA")
    rejected(platform.observe(scale(workload="nobody")), "unknown_target", "--job-name=nobody")
    assert isinstance(carried_out(platform, preempt(before=1, after=0)), Done)
    assert cluster.show(mine)["JobState"] == "PENDING"
    for job in (theirs, claiming, elsewhere):
        assert cluster.show(job)["JobState"] == "RUNNING"
    assert isinstance(carried_out(platform, preempt("p2", workload=f"slurm/{theirs}", before=1, after=0)), Done)
    assert cluster.show(theirs)["JobState"] == "PENDING"


def test_what_it_cannot_do_is_said_before_anything_is_done(cluster: SlurmCluster) -> None:
    cluster.submit("fixed", "--no-requeue")
    platform = cluster.platform()
    rejected(submitted(platform, scale(workload="fixed", before=1, after=1, power_limit_w=9.0)), "unsupported", "power")
    rejected(submitted(platform, preempt(workload="fixed", before=1, after=0)), "unsupported", "--requeue")
    assert "flyball:" not in cluster.queue()


def test_a_dry_run_changes_nothing(cluster: SlurmCluster) -> None:
    job = cluster.submit("chat", signal="B:USR1@2")
    cluster.submit("chat", "--hold", waits=True)
    node = cluster.show(job)["NodeList"]
    platform, before = cluster.platform(), cluster.queue()
    for decision in (
        preempt(before=1, after=0),
        scale(before=1, after=2),
        migrate(replica=f"{job}.{node}", from_node=node),
    ):
        planned = submitted(platform, decision, dry_run=True)
        assert isinstance(planned, Handle)
        assert planned.operation == ""
        assert "would be" in planned.answer
    assert cluster.queue() == before
    assert cluster.job_log(job) == ["start 0"]


def test_what_somebody_changed_meanwhile_is_decided_again(cluster: SlurmCluster) -> None:
    job = cluster.submit("chat")
    platform = cluster.platform()
    observed = platform.observe(scale())
    assert not isinstance(observed, Rejected)
    cluster.run("scontrol", "requeuehold", str(job))
    rejected(platform.submit(preempt(before=1, after=0), observed, dry_run=False), "conflict", "were changed")


def test_a_crash_at_any_point_settles(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [cluster.submit("chat") for _ in range(2)]
    decision = preempt("crash", before=2, after=0)
    claimed = cluster.platform().observe(decision)
    assert not isinstance(claimed, Rejected)
    assert cluster.platform().find(decision, claimed) is None
    marks: list[int] = []

    def crash(*arguments: Any) -> Any:
        if len(marks) == limit:
            raise PlatformError("killed")
        marks.append(1)
        return set_mark(*arguments)

    monkeypatch.setattr(count, "set_mark", crash)
    limit = 1  # after the first of two marks: nothing was begun
    with pytest.raises(PlatformError):
        cluster.platform().submit(decision, claimed, dry_run=False)
    assert cluster.queue().count("flyball:crash:") == 1
    assert cluster.platform().find(decision, claimed) is None
    other = preempt("p9", before=2, after=0)
    hidden = cluster.platform().find(other, claimed)  # another user has changed the jobs since that was claimed
    assert isinstance(hidden, Handle)
    assert isinstance(cluster.platform().poll(hidden), Failed)
    limit = 9

    def killed(*_: Any) -> Any:
        raise PlatformError("killed")

    with monkeypatch.context() as patch:  # all marked, nothing done
        patch.setattr(count, "poll_count", killed)
        with pytest.raises(PlatformError):
            submitted(cluster.platform(), decision)
    assert [cluster.show(job)["JobState"] for job in jobs] == ["RUNNING"] * 2
    found = cluster.platform().find(decision, claimed)
    assert isinstance(found, Handle)
    assert isinstance(ended(cluster.platform(), found), Done)
    assert [cluster.show(job)["Restarts"] for job in jobs] == ["1"] * 2
    again = cluster.platform().find(decision, None)
    assert isinstance(again, Handle)
    assert isinstance(ended(cluster.platform(), again), Done)
    assert [cluster.show(job)["Restarts"] for job in jobs] == ["1"] * 2  # once


@pytest.mark.parametrize("device", ["GPU-1", ""])
def test_a_job_leaves_its_node(cluster: SlurmCluster, device: str) -> None:
    job, neighbour = cluster.submit("chat", signal="B:USR1@1"), cluster.submit("bank")
    node = cluster.show(job)["NodeList"]
    assert cluster.show(neighbour)["NodeList"] == node
    decision = migrate(f"move {job}", replica=f"{job}.{node}", from_node=node, from_device=device)
    done = carried_out(cluster.platform(), decision)
    assert isinstance(done, Done)
    shown = cluster.show(job)
    assert shown["JobState"] == "RUNNING"
    assert shown["NodeList"] not in (node, "")
    assert done.observed.nodes == {f"{job}.{node}": shown["NodeList"]}
    assert (shown["ExcNodeList"], shown["Restarts"]) == (node, "1")
    cluster.until(lambda: cluster.job_log(job) == ["start 0", "checkpoint", "end", "start 1"], "it goes on")
    assert (f"flyball move {job}" in cluster.state(node), "drain" in cluster.state(node)) == (
        bool(device),
        bool(device),
    )
    assert cluster.show(neighbour)["JobState"] == "RUNNING"  # a drained node lets its jobs go on
    found = cluster.platform().find(decision, None)
    assert isinstance(found, Handle)
    assert isinstance(cluster.platform().poll(found), Done)
    assert cluster.show(job)["Restarts"] == "1"


def test_a_move_that_was_marked_and_not_begun_goes_on(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    job = cluster.submit("chat")
    node = cluster.show(job)["NodeList"]
    decision = migrate(f"crash {job}", replica=f"{job}.{node}", from_node=node, from_device="")

    def killed(*_: Any) -> Any:
        raise PlatformError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "poll_move", killed)
        with pytest.raises(PlatformError):
            submitted(cluster.platform(), decision)
    assert cluster.show(job)["NodeList"] == node
    found = cluster.platform().find(decision, None)
    assert isinstance(found, Handle)
    assert isinstance(ended(cluster.platform(), found), Done)
    assert cluster.show(job)["NodeList"] not in (node, "")


def test_a_hold_by_somebody_else_wins(cluster: SlurmCluster) -> None:
    job = cluster.submit("chat", "--hold", "-N4", gpus=2, waits=True)
    blocker = cluster.submit("bank")  # so that there is no room
    platform = cluster.platform()
    handle = submitted(platform, scale(before=0, after=1))
    assert isinstance(handle, Handle)
    waits = platform.poll(handle)
    assert isinstance(waits, Running)
    assert "waits for room" in waits.answer
    cluster.run("scontrol", "hold", str(job))
    last = platform.poll(handle)
    assert isinstance(last, Superseded)
    assert "held by another user" in last.answer
    assert cluster.show(job)["Priority"] == "0"
    assert cluster.show(blocker)["JobState"] == "RUNNING"


def test_a_controller_that_is_down_is_no_answer(cluster: SlurmCluster) -> None:
    job = cluster.submit("chat")
    platform = cluster.platform(timeout_s=1.0)
    handle = submitted(platform, scale(before=1, after=1))
    assert isinstance(handle, Handle)
    cluster.stop_controller()
    try:
        with pytest.raises(PlatformError, match="no answer within 1 s"):
            platform.observe(scale())
        with pytest.raises(PlatformError):
            platform.poll(handle)
    finally:
        cluster.start_controller()
    assert isinstance(ended(platform, handle), Done)
    assert cluster.show(job)["JobState"] == "RUNNING"


def test_without_the_commands_nothing_is_known(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PlatformError, match="slurm-client"):
        cluster.platform().observe(scale())
