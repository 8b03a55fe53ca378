"""Discovery of Slurm jobs: what they announce, by file or environment, and how that becomes rows."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.collectors.attribution.cgroup_tree import MOUNT, CgroupTree, remove, write
from tests.collectors.workload.workload_pages import Work, vllm
from tests.collectors.workload.workload_server import page_server, until

from flyball_collectors.agent.diagnosis.doctor import explain
from flyball_collectors.attribution import AttributionCollector
from flyball_collectors.parameters import AgentParameters, AttributionParameters, SlurmParameters, WorkloadsParameters
from flyball_collectors.workload import WorkloadCollector
from flyball_collectors.workload.discovery.base import DiscoveredReplica, NodeState
from flyball_collectors.workload.discovery.slurm import JobWatch, find_jobs, replicas_of, variables_of
from flyball_collectors.workload.discovery.targets import discovered
from flyball_contracts.config import AttributionConfig, Config
from flyball_contracts.config.attribution import NamingRule
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import WORKLOAD

SCOPE = "/system.slice/slurmstepd.scope"
ANNOUNCED = {"FLYBALL_WORKLOAD": "chat", "FLYBALL_SERVER": "vllm", "FLYBALL_METRICS_PORT": "8000"}
ACTIVE = WORKLOAD.column("flyball.workload.request.active")
PROLOG = Path(__file__).parents[3] / "infra/slurm/task-prolog"
FAST = SlurmParameters(folder="/run/jobs", period_s=0.02, node_period_s=0.05, node_timeout_s=5.0)


def job(tree: CgroupTree, number: int, *pids: int) -> Path:
    """A job's group with processes in a step's task."""
    folder = tree.group(f"{SCOPE}/job_{number}")
    write(folder / "cgroup.procs", "")
    write(folder / "step_0/user/task_0/cgroup.procs", "".join(f"{pid}\n" for pid in pids))
    return folder


def environ(tree: CgroupTree, pid: int, **reported: str) -> None:
    tree.process(pid, f"{SCOPE}/job_7/step_0/user/task_0")
    write(tree.root / f"proc/{pid}/environ", "".join(f"{name}={value}\0" for name, value in reported.items()))


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    return CgroupTree(tmp_path)


@pytest.fixture
def watch(tree: CgroupTree) -> Iterator[JobWatch]:
    watch = JobWatch(FAST, "n1", tree.root)
    yield watch
    watch.close()


@pytest.mark.parametrize(
    ("more", "url"),
    [
        ({}, "http://127.0.0.1:8000/metrics"),
        ({"FLYBALL_METRICS_PATH": "prometheus"}, "http://127.0.0.1:8000/prometheus"),
        ({"FLYBALL_METRICS_PATH": "/a?b"}, ""),
        ({"FLYBALL_METRICS_PORT": "80/x"}, ""),
        ({"FLYBALL_METRICS_PORT": "65536"}, ""),
        ({"FLYBALL_METRICS_PORT": ""}, ""),
    ],
)
def test_where_a_job_is_scraped(more: dict[str, str], url: str) -> None:
    (found,) = replicas_of("7", "n1", [ANNOUNCED | more])
    assert found == DiscoveredReplica("slurm", "chat", "7.n1", (("job", "7"),), url, "vllm", "requests")


def test_each_port_of_a_job_is_a_replica() -> None:
    other = ANNOUNCED | {"FLYBALL_METRICS_PORT": "8001"}
    assert [one.replica for one in replicas_of("7", "n1", [ANNOUNCED, other, ANNOUNCED, {}])] == [
        "7.n1.8000",
        "7.n1.8001",
    ]
    named = [one | {"FLYBALL_REPLICA": f"r{place}"} for place, one in enumerate((ANNOUNCED, other))]
    assert [one.replica for one in replicas_of("7", "n1", named)] == ["r0", "r1"]


def test_variables_of_a_file_and_of_a_process() -> None:
    text = "PATH=/bin\nFLYBALL_WORKLOAD= chat \nFLYBALL_WORK\n=x\nFLYBALL_SERVER=a=b\n"
    assert variables_of(text) == {"FLYBALL_WORKLOAD": "chat", "FLYBALL_SERVER": "a=b"}
    assert variables_of(text.replace("\n", "\0")) == variables_of(text)
    assert variables_of("") == variables_of(f"FLYBALL_WORKLOAD={'x' * 254}") == {}


@pytest.mark.parametrize(
    "group",
    ["system.slice/slurmstepd.scope/job_7", "system.slice/n1_slurmstepd.scope/job_7", "memory/slurm/uid_1000/job_7"],
)
def test_jobs_of_both_versions_of_the_control_groups(tmp_path: Path, group: str) -> None:
    (tmp_path / MOUNT / group / "step_0").mkdir(parents=True)
    (tmp_path / MOUNT / "system.slice/slurmd.service").mkdir(parents=True)
    assert find_jobs(tmp_path) == {"7": tmp_path / MOUNT / group}


def test_the_prolog_reports_a_job_without_any_privilege(tree: CgroupTree, watch: JobWatch) -> None:
    group = job(tree, 7, 20)
    (tree.root / "proc/20").mkdir(parents=True)  # another user's: its environment is not ours to read
    until(lambda: "install infra/slurm/task-prolog" in str(watch.problem))
    folder = tree.root / "run/jobs"
    folder.mkdir(parents=True)
    task = {"PATH": os.environ["PATH"], "FLYBALL_JOBS": str(folder), "SLURM_JOB_ID": "7", "SLURM_PROCID": "3"}
    mine = tree.root / "mine"
    mine.write_text("mine")
    for reported in ({}, ANNOUNCED, ANNOUNCED):
        done = subprocess.run([PROLOG], env=task | reported, capture_output=True, check=True)
        assert (done.stdout, done.stderr) == (b"", b"")  # what it printed would be obeyed by Slurm
    assert [path.name for path in folder.iterdir()] == ["7.0.3"]
    (folder / "8.0.3").symlink_to(mine)
    subprocess.run([PROLOG], env=task | ANNOUNCED | {"SLURM_JOB_ID": "8"}, check=True)
    assert mine.read_text() == "mine"
    os.mkfifo(folder / "7.pipe")  # nobody must be able to hold the agent
    (folder / "7.large").write_bytes(b"FLYBALL_WORKLOAD=" + bytes(1 << 20))
    until(lambda: [(one.workload, one.replica) for one in watch.found] == [("chat", "7.n1")] and watch.problem == "")
    remove(group)
    until(lambda: watch.found == ())
    subprocess.run([PROLOG.with_name("epilog")], env=task, check=True)
    assert [path.name for path in folder.iterdir()] == ["8.0.3"]


def test_files_of_users_without_a_process_in_the_job_are_reported(tree: CgroupTree, watch: JobWatch) -> None:
    job(tree, 7, 20)  # a process whose user cannot be seen
    folder = tree.root / "run/jobs"
    folder.mkdir(parents=True)
    (folder / "7.0.3").write_text("FLYBALL_WORKLOAD=chat\n")
    until(lambda: "files of job 7 from users who have no process in it" in str(watch.problem))
    assert watch.found == ()
    (tree.root / "proc/20").mkdir(parents=True)
    until(lambda: [one.workload for one in watch.found] == ["chat"] and watch.problem == "")


def test_an_agent_that_may_reads_the_environment(tree: CgroupTree, watch: JobWatch) -> None:
    job(tree, 7, 20, 21)
    environ(tree, 20, PATH="/bin")
    environ(tree, 21, **ANNOUNCED)
    until(lambda: [one.url for one in watch.found] == ["http://127.0.0.1:8000/metrics"] and watch.problem == "")
    assert watch.errors == 0


def test_one_job_cannot_have_any_number_of_replicas(tree: CgroupTree, watch: JobWatch) -> None:
    job(tree, 7, *range(20, 320))
    for pid in range(20, 320):
        environ(tree, pid, **ANNOUNCED | {"FLYBALL_METRICS_PORT": str(pid)})
    until(lambda: watch.problem == "300 replicas; those after 256 are left out")
    assert len(watch.found) == 256


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"FLYBALL_SERVER": ""}, "FLYBALL_SERVER is ''; set one of vllm, triton, tgi, sglang"),
        ({"FLYBALL_WORK": "steps"}, "FLYBALL_WORK is 'steps'; set requests or tokens"),
        ({"FLYBALL_METRICS_PORT": "x"}, "has no page; set FLYBALL_METRICS_PORT to a port of this node"),
    ],
)
def test_announcements_that_are_incomplete(more: dict[str, str], expected: str) -> None:
    (found,) = replicas_of("7", "n1", [ANNOUNCED | more])
    with pytest.raises(ConfigError, match=f"^job 7: {expected}"):
        discovered(found)


def test_a_jobs_server_is_a_row_and_names_the_jobs_devices(tree: CgroupTree) -> None:
    with page_server() as server:
        server.respond("/health")
        server.respond("/metrics", vllm(Work(active=3)))
        job(tree, 7, 20)
        environ(tree, 20, **ANNOUNCED | {"FLYBALL_METRICS_PORT": server.url.rpartition(":")[2]})
        config = WorkloadsParameters(period_s=0.05, discover=("slurm",), slurm=FAST)
        rules = AttributionConfig(rules=(NamingRule(match={"runtime": "slurm"}, workload="ch*"),))
        collector = WorkloadCollector(config, "n1", root=tree.root, attribution=rules, environ={})
        attribution = AttributionCollector(AttributionParameters(), "n1", tree.root)
        attribution.attach(None, [collector])
        try:
            key = ("chat", "7.n1")
            until(lambda: any(one.rows[key][ACTIVE] == 3 for one in collector.read(0, 1) if key in one.rows))
            (reported,) = collector.parts().allocations
            attribution.read(0, 1)
            (unit,) = attribution.parts().allocations
            assert (reported.workload, reported.replica, reported.runtime, reported.labels) == (
                *key,
                "slurm",
                {"job": "7"},
            )
            assert unit == reported
            assert collector.problems() == {"chat/7.n1": "", "slurm": ""}
        finally:
            collector.close()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_doctor_reports_what_a_node_with_slurm_lacks(tree: CgroupTree, tmp_path: Path, enabled: bool) -> None:
    job(tree, 7, 20)
    write(tree.root / "proc/stat", "cpu 1 2 3\n")
    agent = AgentParameters(
        root=str(tree.root),
        state_dir=str(tmp_path / "s"),
        workloads=WorkloadsParameters(discover=("slurm",) if enabled else (), slurm=FAST),
        disabled=("nvml",),
    )
    (finding,) = [one for one in explain(Config(agent=agent)) if one.name == "workload.slurm"]
    assert not finding.ok
    assert ("infra/slurm/task-prolog" if enabled else "agent.workloads.discover") in finding.remedy


def test_a_node_whose_state_slurm_does_not_tell(
    tree: CgroupTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", str(commands))
    watch = JobWatch(replace(FAST, node_timeout_s=2.0), "n1", tree.root)
    try:
        until(lambda: watch.problem == "")  # there is no scontrol
        program = commands / "scontrol"
        program.write_text("#!/bin/sh\necho 'Node n1 not found' >&2\nexit 1\n")
        program.chmod(0o755)
        until(lambda: "scontrol does not show node 'n1' (Node n1 not found)" in (watch.problem or ""))
        assert watch.node == NodeState(), "as long as nothing is known"
        program.write_text("#!/bin/sh\necho 'NodeName=n1 State=MIXED+DRAIN Reason=fan [root@2026-01-01T00:00:00]'\n")
        until(lambda: watch.node == NodeState(schedulable=False, cordon="other"))
        until(lambda: watch.problem == "")
        program.write_text("no program")
        until(lambda: "OSError" in (watch.problem or ""))
        assert watch.node == NodeState(schedulable=False, cordon="other"), "what was known stays"
        program.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
        job(tree, 7, 41)
        environ(tree, 41, FLYBALL_WORKLOAD="w", FLYBALL_METRICS_PORT="8000")
        until(lambda: [one.workload for one in watch.found] == ["w"])  # a query that hangs holds up no discovery
        assert "no answer" not in (watch.problem or "")
        until(lambda: "no answer in 2 s" in (watch.problem or ""))
        program.write_text("#!/bin/sh\necho 'NodeName=n1 State=IDLE'\n")
        until(lambda: watch.node == NodeState())
    finally:
        watch.close()
