"""What needs no cluster: settings, marks, what is read from the queue, and which jobs are chosen."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.actuators.samples import NOW, S, preempt, scale

from flyball_actuators.platforms import Handle, PlatformError, Rejected, Superseded, make_platforms
from flyball_actuators.platforms.slurm.checkpoint import Checkpoint, checkpoint_of, parse
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.count import choose
from flyball_actuators.platforms.slurm.jobs import Job, queue
from flyball_actuators.platforms.slurm.marks import Mark, mark_of, marked
from flyball_actuators.platforms.slurm.operation import Operation, decode
from flyball_actuators.platforms.slurm.platform import SlurmPlatform
from flyball_actuators.platforms.slurm.power import PowerSave
from flyball_actuators.platforms.slurm.targets import job_of_replica, jobs_of, key_of, version_of
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import SubjectState

ANY = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBER = st.integers(0, 10**10)
JOB = Job(
    id=1, name="chat", user="ann", partition="ml", state="RUNNING", priority=9, restarts=0, comment="", nodes="gpu1",
    excluded="", required="", start_s=100, eligible_s=90, requeue=True, batch=True, part=False,
)  # fmt: skip
HELD = JOB._replace(state="PENDING", priority=0, nodes="", start_s=0)
ENTRY: dict[str, Any] = {
    "job_id": 7, "name": "chat", "user_name": "ann", "partition": "ml", "job_state": "RUNNING", "priority": 5,
    "restart_cnt": 2, "comment": "a b", "nodes": "gpu[1-2]", "excluded_nodes": "", "required_nodes": "",
    "start_time": 9, "eligible_time": 8, "requeue": True, "batch_flag": True, "array_job_id": 0, "het_job_id": 0,
}  # fmt: skip


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, *names: str) -> Commands:
    """Commands that are this script."""
    for name in names or ("squeue", "scontrol", "scancel"):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Commands("", 5.0)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), NUMBER, NUMBER, st.none() | NUMBER, ANY)
def test_a_mark_is_read_again_and_leaves_what_was_there(
    decision: str, restarts: int, jobs: int, due_s: int | None, comment: str
) -> None:
    first = Mark(decision, "stop", restarts, jobs, due_s)
    once = marked(comment, first)
    assert mark_of(once) == first
    second = first._replace(decision=f"{decision}2", verb="start")
    again = marked(once, second)
    assert mark_of(again) == second
    if mark_of(comment) is None:
        assert again.split() == [*comment.split(), str(second)]


@pytest.mark.parametrize("comment", ["", "flyball:", "flyball:d1", "flyball:d1:dance.0.1", "xflyball:d1:stop.0.1"])
def test_other_words_are_no_mark(comment: str) -> None:
    assert mark_of(comment) is None


@given(
    st.builds(
        Operation,
        verb=st.sampled_from(["count", "migrate"]),
        decision=ANY,
        workload=ANY,
        replica=ANY,
        node=ANY,
        serve=st.booleans(),
        drain=st.booleans(),
        until_ns=NUMBER,
    )
)
def test_an_operation_is_found_again_by_its_name(operation: Operation) -> None:
    assert decode(operation.encode()) == operation


@pytest.mark.parametrize("text", ["", "p1", "verb=dance&decision=d", "verb=count&decision=d&workload=w&jobs=x"])
def test_a_name_of_another_platform_is_none_of_ours(text: str) -> None:
    with pytest.raises(PlatformError, match="none of platform slurm"):
        decode(text)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"driver": "slurm"}, "partitions: none is named; list those"),
        ({"driver": "slurm", "partitions": ("ml",), "conf": "/none"}, "conf: /none is no file; name"),
        ({"driver": "slurm", "partitions": ("ml",), "url": "http://a:1"}, "url: driver slurm does not use it"),
        ({"driver": "slurm", "partitions": ("ml",), "namespaces": ("ml",)}, "namespaces: driver slurm does not use it"),
        ({"driver": "kubernetes", "partitions": ("ml",)}, "partitions: driver kubernetes does not use it"),
        ({"driver": "inventory", "conf": "/etc/hosts"}, "conf: driver inventory does not use it"),
    ],
)
def test_settings_that_cannot_work_are_named(entry: dict[str, Any], message: str) -> None:
    config = ActuatorConfig(platforms=(PlatformConfig(**entry),))
    with pytest.raises(ConfigError, match=r"^actuator.platforms\[0\]\." + message):
        make_platforms(config, lambda cell, workload: {})


@pytest.mark.parametrize(
    ("output", "code", "remedy"),
    [
        ("Access/permission denied for job 7", "platform", "adminlevel=operator"),
        ("Invalid job id specified for job 7", "conflict", "decide again"),
        ("Requested operation is presently disabled for job 7", "unsupported", "--requeue"),
    ],
)
def test_what_slurm_says_no_to_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: str, remedy: str
) -> None:
    commands = program(tmp_path, monkeypatch, f"echo '{output}' >&2; exit 1")
    answer = commands.apply("scontrol", "requeuehold", "7")
    assert isinstance(answer, Rejected)
    assert answer.code == code
    assert answer.detail.startswith(f"scontrol requeuehold 7: {output}; ")
    assert remedy in answer.detail


@pytest.mark.parametrize(
    "script", ["echo 'Unexpected message received' >&2; exit 1", "exit 1", "exec sleep 9", "kill -9 $$"]
)
def test_what_nobody_knows_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program(tmp_path, monkeypatch, script)
    with pytest.raises(PlatformError, match=r"^scontrol release 7: "):
        Commands("", 0.3).apply("scontrol", "release", "7")


def test_variables_of_the_user_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "all")
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    monkeypatch.setenv("SLURM_CONF", "/mine")
    program(tmp_path, monkeypatch, "env", "squeue")
    for conf, expected in (("", "/mine"), ("/named", "/named")):
        output = Commands(conf, 5.0).query("squeue").splitlines()
        assert {line for line in output if line.startswith(("SLURM", "SQUEUE"))} == {
            f"SLURM_CONF={expected}",
            "SLURM_BITSTR_LEN=0",
        }
        assert "LC_ALL=C" in output


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"job_state": ["RUNNING"], "priority": {"set": True, "infinite": False, "number": 5}, "comment": None},
        {"array_job_id": {"set": True, "infinite": False, "number": 0}, "het_job_id": None},
    ],
)
def test_jobs_are_read_as_old_and_newer_versions_show_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    (tmp_path / "jobs").write_text(json.dumps({"errors": [], "jobs": [ENTRY | changes]}))
    job = queue(program(tmp_path, monkeypatch, f"cat {tmp_path}/jobs"))["7"]
    assert (job.ready, job.requested, job.held, job.ended, job.part) == (True, True, False, False, False)
    assert (job.priority, job.restarts, job.nodes) == (5, 2, "gpu[1-2]")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"jobs": [{}]}', '{"errors": ["down"], "jobs": []}', '{"jobs": 1}'])
def test_an_answer_in_another_language_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "jobs").write_text(text)
    with pytest.raises(PlatformError, match="squeue --json"):
        queue(program(tmp_path, monkeypatch, f"cat {tmp_path}/jobs"))


def test_a_job_that_runs_again_by_the_time_that_it_should_be_held_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node failed while it wrote its checkpoint, and Slurm has started it elsewhere."""
    entry = {**ENTRY, "nodes": "gpu2", "restart_cnt": 3, "comment": str(Mark("d", "stop", 2, 1))}
    (tmp_path / "jobs").write_text(json.dumps({"errors": [], "jobs": [entry]}))
    program(tmp_path, monkeypatch, f"cat {tmp_path}/jobs", "squeue")
    program(tmp_path, monkeypatch, "exit 1", "scontrol", "scancel")
    operation = Operation(verb="count", decision="d", workload="chat", jobs="7", replicas=0, until_ns=NOW + S)
    platform = SlurmPlatform(PlatformConfig(driver="slurm", partitions=("ml",)), clock=lambda: NOW)
    ended = platform.poll(Handle(operation=operation.encode(), expected=SubjectState()))
    assert isinstance(ended, Superseded)
    assert "job 7 (chat) was started again" in ended.answer


def test_two_users_are_not_one_workload() -> None:
    other = JOB._replace(id=2, user="bob")
    problem = jobs_of({"1": JOB, "2": other}, "chat", ("ml",))
    assert isinstance(problem, Rejected)
    assert problem.code == "invalid"
    assert "job 1 (chat) of ann and job 2 (chat) of bob both claim" in problem.detail
    elsewhere = other._replace(partition="other,ml")  # may start where Flyball has no say
    assert jobs_of({"1": JOB, "2": elsewhere}, "chat", ("ml",)) == [JOB]
    called = JOB._replace(id=3, name="x", comment="why flyball.dev/workload=team/chat")
    assert jobs_of({"3": called}, "team/chat", ("ml",)) == [called]
    assert isinstance(jobs_of({"3": called}, "slurm/3", ("ml",)), Rejected)


def test_a_version_is_of_what_is_commanded() -> None:
    waiting = JOB._replace(state="PENDING", nodes="", start_s=0)
    assert version_of([JOB]) == version_of([waiting]) == version_of([JOB._replace(comment="words")])
    for changed in (HELD, JOB._replace(restarts=1), JOB._replace(comment=marked("", Mark("d", "stop", 0, 1)))):
        assert version_of([JOB]) != version_of([changed])


def ids(answer: Any) -> list[int]:
    assert not isinstance(answer, Rejected), answer
    return [job.id for job in answer.jobs]


def test_who_waits_goes_first_then_the_latest() -> None:
    jobs = [JOB._replace(id=i, start_s=start) for i, start in ((1, 300), (2, 100), (3, 200))]
    waiting = JOB._replace(id=4, state="PENDING", start_s=0)
    fixed = JOB._replace(id=5, start_s=400, requeue=False)
    assert ids(choose([*jobs, waiting, fixed, HELD._replace(id=6)], scale(after=2))) == [4, 1, 3]
    assert ids(choose(jobs, preempt(after=1, victims=("2.gpu1", "2.gpu2", "9.gpu1")))) == [2, 1]
    assert ids(choose(jobs, preempt(after=2, victims=("2.gpu1", "3.gpu1")))) == [2]  # never more than it says
    for problem in (choose([fixed], scale(after=0)), choose([fixed, *jobs], preempt(after=3, victims=("5.gpu1",)))):
        assert isinstance(problem, Rejected)
        assert "job 5 (chat) cannot be requeued" in problem.detail
    assert isinstance(choose(jobs, preempt(after=4)), Rejected)


def test_who_was_stopped_by_us_comes_back_first() -> None:
    by_us = HELD._replace(id=8, comment=marked("", Mark("d", "stop", 0, 1)))
    assert ids(choose([JOB, HELD._replace(id=2), by_us], scale(after=2))) == [8]
    assert ids(choose([JOB, HELD._replace(id=2)], scale(after=1))) == []


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("B:USR1@30", Checkpoint("USR1", True, 30)),
        ("usr2@5", Checkpoint("USR2", False, 5)),
        ("R:B:10@9", None),
        ("RB:10", Checkpoint("10", True, 60)),
        ("'USR1@99999'", Checkpoint("USR1", False, 600)),
        ("", None),
    ],
)
def test_a_checkpoint_is_what_sbatch_says(text: str, known: Checkpoint | None) -> None:
    assert parse(text) == known


def test_the_comment_counts_before_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "#!/bin/sh\\n# words\\n#SBATCH -N 2 --signal B:TERM@7\\ntrue\\n#SBATCH --signal=USR2@8\\n"
    commands = program(tmp_path, monkeypatch, f"printf '{lines}'")
    assert checkpoint_of(commands, JOB) == Checkpoint("TERM", True, 7)
    output = JOB._replace(comment="a flyball.dev/checkpoint=USR1@3 b")
    assert checkpoint_of(commands, output) == Checkpoint("USR1", False, 3)
    assert checkpoint_of(commands, JOB._replace(batch=False)) is None
    assert checkpoint_of(program(tmp_path, monkeypatch, "printf 'true\\n#SBATCH --signal=USR1@8\\n'"), JOB) is None
    denied = program(tmp_path, monkeypatch, "echo 'Access/permission denied' >&2; exit 1")
    assert checkpoint_of(denied, JOB) is None


@pytest.mark.parametrize(
    ("replica", "job"),
    [
        ("7.gpu1", "7"),
        ("7", "7"),
        ("7.gpu1.8000", "7"),
        ("7_4.gpu1", "7_4"),
        ("7_x", None),
        ("chat-0", None),
        ("", None),
    ],
)
def test_replicas_are_named_by_job_and_node(replica: str, job: str | None) -> None:
    assert key_of(replica) == job


def test_tasks_of_an_array_are_jobs_also_while_they_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = ENTRY | {"job_id": 9, "array_job_id": 7, "array_task_id": 3}
    waits = ENTRY | {"array_job_id": 7, "array_task_id": None, "array_task_string": "1,4-8:2%5", "job_state": "PENDING"}
    (tmp_path / "jobs").write_text(json.dumps({"errors": [], "jobs": [ran, waits]}))
    known = queue(program(tmp_path, monkeypatch, f"cat {tmp_path}/jobs"))
    assert set(known) == {"7_1", "7_3", "7_4", "7_6", "7_8"}
    found = jobs_of(known, "slurm/7", ("ml",))
    assert not isinstance(found, Rejected)
    assert [job.key for job in found] == ["7_1", "7_3", "7_4", "7_6", "7_8"]
    assert {job_of_replica(found, replica) for replica in ("9.gpu1", "7_3", "7_3.gpu1")} == {known["7_3"]}
    assert job_of_replica(found, "7.gpu1") is None, "an array is no replica"
    (tmp_path / "jobs").write_text(json.dumps({"errors": [], "jobs": [waits | {"array_task_string": "1-4,..."}]}))
    with pytest.raises(PlatformError, match="array_task_string"):
        queue(Commands("", 5.0))


@pytest.mark.parametrize(
    ("state", "ready", "pending"),
    [
        ("RUNNING", True, False),
        (["RUNNING"], True, False),
        (["RUNNING", "CONFIGURING"], False, False),
        (["RUNNING", "COMPLETING"], False, False),
        (["PENDING", "REQUEUE_HOLD"], False, True),
    ],
)
def test_a_job_of_newer_versions_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any, ready: bool, pending: bool
) -> None:
    """From 23.02 on numbers are objects, and states and host lists may be lists."""
    new = {
        **ENTRY,
        "job_state": state,
        "priority": {"set": True, "infinite": False, "number": 5},
        "excluded_nodes": ["a", "b"],
    }
    (tmp_path / "answer").write_text(json.dumps({"jobs": [new], "errors": []}))
    (job,) = queue(program(tmp_path, monkeypatch, f"cat {tmp_path / 'answer'}")).values()
    assert (job.ready, job.pending, job.priority, job.excluded) == (ready, pending, 5, "a,b")


def test_nodes_of_newer_versions_are_asked_of_scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"partitions": ["ml"], "comment": "", "reason": "", "alloc_cpus": 0}
    nodes = [{**node, "name": "a", "state": ["IDLE"]}, {**node, "name": "b", "state": ["IDLE", "POWERED_DOWN"]}]
    (tmp_path / "nodes").write_text(json.dumps({"nodes": nodes}))
    script = f"case $0 in */sinfo) echo '{{\"sinfo\": []}}';; *) cat {tmp_path / 'nodes'};; esac"
    commands = program(tmp_path, monkeypatch, script, "sinfo", "scontrol")
    held = PowerSave(commands, "gpu", "ml", lambda: 0).observe()
    assert not isinstance(held, Rejected)
    assert (held.machines, held.ready, held.most) == (1, 1, 2)
