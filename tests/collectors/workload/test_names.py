"""Who may report for a workload: what pods, jobs and processes claim, judged by the rows that an agent sends."""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.brokers.server import free_ports
from tests.collectors.attribution.cgroup_tree import CgroupTree, write
from tests.collectors.workload.test_slurm import ANNOUNCED, FAST, SCOPE, job
from tests.collectors.workload.workload_server import until

from flyball_collectors.attribution import AttributionCollector
from flyball_collectors.parameters import WorkloadsParameters
from flyball_collectors.workload import WorkloadCollector
from flyball_contracts.config import AttributionConfig
from flyball_contracts.config.attribution import NamingRule

ANN, BOB = os.getuid() or 1042, 1043
"""Numbers of users. Only root may show processes as those of others; its own ones in a job are Slurm's."""
RULES = AttributionConfig(
    rules=(
        NamingRule(match={"runtime": "slurm", "job": "7"}, workload="prod"),
        NamingRule(match={"namespace": "ml"}, workload="prod"),
        NamingRule(match={"unit": "train.service"}, workload="team/own"),
        NamingRule(match={"runtime": "slurm", "user": str(ANN)}, workload="of-ann"),
        NamingRule(match={"runtime": "slurm", "user": str(ANN)}, workload="ann-*"),
        NamingRule(match={"runtime": "*"}, workload="free*"),
    )
)
FDS = struct.pack("2i", 0, 0)
SEND = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), sys.argv[1])"


def belongs(tree: CgroupTree, user: int, *pids: int) -> None:
    """Show processes as those of a user."""
    for pid in pids:
        folder = tree.root / f"proc/{pid}"
        folder.mkdir(parents=True, exist_ok=True)
        if os.getuid() != user:
            os.chown(folder, user, -1)


def lines(*names: str) -> str:
    return "\n".join(f"training,workload={name} step=1" for name in names)


def rows(collector: WorkloadCollector) -> set[str]:
    return {workload for reading in collector.read(0, 1) for workload, _ in reading.rows}


@pytest.mark.parametrize(
    ("group", "allowed"),
    [
        (f"{SCOPE}/job_7/step_0/user/task_0", {"prod", "slurm/7", "of-ann", "ann-1", "free"}),
        (f"{SCOPE}/job_8/step_0/user/task_0", {"slurm/8", "of-ann", "ann-1", "free"}),
        ("/system.slice/train.service", {"team/own", "process/train.service", "free"}),
        ("pod 0 of ml", {"prod", "ml/chat", "free"}),
        ("pod 1 of web", {"web/chat", "free"}),
        ("", {"free"}),
    ],
)
def test_a_line_speaks_for_the_unit_of_its_sender(tmp_path: Path, group: str, allowed: set[str]) -> None:
    tree, everything = CgroupTree(tmp_path / "host"), {
        "prod", "slurm/7", "slurm/8", "team/own", "process/train.service", "ml/chat", "web/chat", "of-ann", "ann-1",
        "bare", "free", "free/1",
    }  # fmt: skip
    if group.startswith("pod"):
        number, namespace = int(group.split()[1]), group.split()[-1]
        tree.pod(number, f"{namespace}_chat-{number}")
        group = tree.pod_path(number)
    if group:
        tree.process(os.getpid(), group)
        belongs(tree, ANN, os.getpid())
    if "job_" in group:
        write(tree.group(group) / "cgroup.procs", f"{os.getpid()}\n")
    path = f"{tmp_path}/t.sock"
    collector = WorkloadCollector(WorkloadsParameters(listen=f"unix://{path}"), "n1", root=tree.root, attribution=RULES)
    try:
        collector.read(0, 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(lines(*everything).encode(), path)
        assert rows(collector) == allowed
        assert collector.errors == len(everything - allowed)
        subprocess.run([sys.executable, "-c", SEND, path, lines("prod", "freely")], check=True)
        assert rows(collector) == allowed | {"freely"}, "another process, of a unit that is not known"
    finally:
        collector.close()


def test_a_number_that_was_given_away_since_speaks_for_nobody(tmp_path: Path) -> None:
    """A process sends a line and ends, and another one of job 7 gets its number before the agent looks."""
    tree, path = CgroupTree(tmp_path / "host"), f"{tmp_path}/t.sock"
    collector = WorkloadCollector(WorkloadsParameters(listen=f"unix://{path}"), "n1", root=tree.root, attribution=RULES)
    try:
        collector.read(0, 1)
        with subprocess.Popen([sys.executable, "-c", SEND, path, lines("prod", "free")]) as stranger:
            pass
        tree.process(stranger.pid, f"{SCOPE}/job_7/step_0/user/task_0")
        before = len(os.listdir("/proc/self/fd"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.setsockopt(socket.SOL_SOCKET, 76, 1)  # SO_PASSPIDFD
                told_apart = True
            except OSError:  # before Linux 6.5
                told_apart = False
        assert rows(collector) == ({"free"} if told_apart else {"free", "prod"})
        for _ in range(3):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendmsg(
                    [b"training,workload=free step=2"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, FDS)], 0, path
                )
            collector.read(0, 1)
        collector.read(0, 1)
        assert len(os.listdir("/proc/self/fd")) == before, "no descriptor stays"
    finally:
        collector.close()


def test_over_udp_nobody_is_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree = CgroupTree(tmp_path)
    tree.process(os.getpid(), f"{SCOPE}/job_7/step_0/user/task_0")
    (port,) = free_ports(1)
    settings = WorkloadsParameters(listen=f"udp://127.0.0.1:{port}")
    collector = WorkloadCollector(settings, "n1", root=tree.root, attribution=RULES)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(lines("prod", "slurm/7", "bare", "free").encode(), ("127.0.0.1", port))
        assert rows(collector) == {"free"}
        assert (
            "from an unknown process: workload 'prod' belongs to the units that agent.attribution.rules" in caplog.text
        )
        assert "listen on unix:///PATH, where the sender is known" in caplog.text
        rule = '{match: {runtime: "*"}, workload: "bare"}'
        assert (
            f"no rule lets it report for workload 'bare'; add {rule} to agent.attribution.rules; better" in caplog.text
        )
    finally:
        collector.close()


def test_a_job_announces_no_workload_of_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree = CgroupTree(tmp_path)
    claims: Iterable[tuple[int, str]] = (
        (7, "prod"), (8, "prod"), (8, "ml/chat"), (8, "slurm/7"), (7, "slurm/7"), (8, "free"), (8, "bare"),
        (8, "free*"), (9, "free-too"),
    )  # fmt: skip
    for number in (7, 8):
        job(tree, number, number)
        (tree.root / f"proc/{number}").mkdir(parents=True)
    job(tree, 9, 9)  # none of its processes is of the user who wrote the file
    folder = tree.root / "run/jobs"
    folder.mkdir(parents=True)
    for place, (number, name) in enumerate(claims):
        said = ANNOUNCED | {"FLYBALL_WORKLOAD": name, "FLYBALL_METRICS_PORT": str(place + 1)}
        (folder / f"{number}.{place}").write_text("".join(f"{key}={value}\n" for key, value in said.items()))
    config = WorkloadsParameters(period_s=60.0, discover=("slurm",), slurm=FAST)
    collector = WorkloadCollector(config, "n1", root=tree.root, attribution=RULES, environ={})
    try:
        until(lambda: rows(collector) == {"prod", "slurm/7", "free"})
        found = {(one.workload, one.labels["job"]) for one in collector.parts().allocations}
        assert found == {("prod", "7"), ("slurm/7", "7"), ("free", "8")}
        rule = '{match: {runtime: slurm, job: "8"}, workload: "bare"}'
        assert f"job 8: no rule lets it report for workload 'bare'; add {rule} to agent." in caplog.text
        assert "job 8: workload 'free*' is no name; choose one without *, ? and [" in caplog.text
    finally:
        collector.close()


def test_a_job_is_its_users(tmp_path: Path) -> None:
    tree = CgroupTree(tmp_path)
    folder = tree.root / "run/jobs"
    folder.mkdir(parents=True)
    users = {1: (ANN,)} if os.getuid() else {1: (ANN,), 2: (BOB,), 3: (ANN, BOB), 4: (0,), 5: (0, ANN)}
    expected = {
        1: ("of-ann", str(ANN)), 2: ("slurm/2", str(BOB)), 3: ("slurm/3", None), 4: ("slurm/4", None),
        5: ("of-ann", str(ANN)),
    }  # fmt: skip
    for number, owners in users.items():
        pids = [10 * number + place for place in range(len(owners))]
        job(tree, number, *pids)
        for pid, owner in zip(pids, owners, strict=True):
            belongs(tree, owner, pid)
        said = ANNOUNCED | {"FLYBALL_WORKLOAD": "of-ann", "FLYBALL_METRICS_PORT": str(number)}
        file = folder / f"{number}.0"
        file.write_text("".join(f"{key}={value}\n" for key, value in said.items()))
        os.chown(file, owners[-1], -1)
    config = WorkloadsParameters(period_s=60.0, discover=("slurm",), slurm=FAST)
    collector = WorkloadCollector(config, "n1", root=tree.root, attribution=RULES, environ={})
    units = AttributionCollector(replace(RULES, without_devices=True), "n1", tree.root)
    try:
        until(lambda: rows(collector) == {"of-ann"})
        of_ann = {str(job) for job in users if expected[job][0] == "of-ann"}
        assert {one.labels["job"] for one in collector.parts().allocations} == of_ann
        units.read(0, 1)
        named = {one.labels["job"]: (one.workload, one.labels.get("user")) for one in units.parts().allocations}
        assert named == {str(job): expected[job] for job in users}
    finally:
        collector.close()
