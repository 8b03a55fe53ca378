"""A Slurm cluster on loopback, from the programs of infra/slurmtest/fetch; see `SlurmCluster`."""

import getpass
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.brokers.server import LOOPBACK, Server, free_ports

from flyball_actuators.platforms.slurm import SlurmPlatform
from flyball_contracts.config import PlatformConfig

READY_S = 90.0
DEADLINE_S = 90.0
NODES, GPUS, OFF = 4, 2, 2
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
COMMANDS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")
CONF = """\
ClusterName=flyball
SlurmctldHost={host}({loopback})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
# No control groups, and nodes that are larger than the host.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
KillWait=2
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
GresTypes=gpu
# Nodes of partition burst are off until somebody brings them back; nobody but the tests turns them off.
SuspendProgram={folder}/suspend
ResumeProgram={folder}/resume
SuspendTime=86400
SuspendTimeout=2
ResumeTimeout=20
SuspendRate=0
ResumeRate=0
PrivateData=cloud
"""
# Jobs of partition pausable may be suspended; the whole cluster is scheduled otherwise then.
GANGS = "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n"
# A machine that is turned on or off: its daemon. Such a node must say that it has just started (-b).
RESUME = """\
#!/bin/sh
export LD_LIBRARY_PATH={libraries} SLURM_CONF={conf}
for node in $({commands}/scontrol show hostnames "$1"); do
    [ -e '{folder}/broken' ] && continue
    setsid {programs}/usr/sbin/slurmd -D -b -N $node -d {programs}/usr/sbin/slurmstepd \
        > '{folder}'/$node.log 2>&1 < /dev/null &
    echo $! > '{folder}'/$node.on
done
"""
SUSPEND = """\
#!/bin/sh
export LD_LIBRARY_PATH={libraries} SLURM_CONF={conf}
for node in $({commands}/scontrol show hostnames "$1"); do
    [ -e '{folder}'/$node.on ] && kill -9 $(cat '{folder}'/$node.on) && rm '{folder}'/$node.on
done
exit 0
"""
# Says in a file of its own what happens to it: a start, a checkpoint when it is asked for one, its end.
SCRIPT = """\
#!/bin/bash
{option}
say() {{ echo "$*" >> '{folder}'/said-"$SLURM_JOB_ID"; }}
trap 'say checkpoint' USR1
trap 'say end; exit 0' TERM
say "start ${{SLURM_RESTART_COUNT:-0}}"
while :; do sleep 0.1; done
"""


def missing(folder: Path) -> str | None:
    """Why the tests on a cluster cannot run, if so."""
    wanted = [*(f"usr/sbin/{name}" for name in DAEMONS), *(f"usr/bin/{name}" for name in COMMANDS)]
    absent = [name for name in wanted if not (folder / name).exists()]
    return f"no {', '.join(absent)} in {folder}; run infra/slurmtest/fetch" if absent else None


class SlurmCluster:
    """A controller and `NODES` nodes of `GPUS` GPUs, partitions ml and other; `run` speaks as an operator.

    Partition burst has `OFF` nodes more, which are turned off. With `pausable`, there is a partition of that name.
    """

    def __init__(self, programs: Path, folder: Path, *, pausable: bool = False) -> None:
        self._programs, self._folder = programs, folder
        (library,) = (programs / "usr" / "lib").glob("*/slurm-wlm")
        self._libraries = f"{library.parent}:{library}"
        self._stack = ExitStack()
        self._controller: Server | None = None
        self.conf = folder / "slurm.conf"
        self.commands = folder / "bin"
        self.nodes = [f"gpu{i}" for i in range(1, NODES + 1)]
        self.off = [f"off{i}" for i in range(1, OFF + 1)]
        for name in ("state", "bin", "dev"):
            (folder / name).mkdir()
        for name in COMMANDS:  # so that nobody else needs the libraries
            file = self.commands / name
            file.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={self._libraries} exec {programs}/usr/bin/{name} "$@"\n')
            file.chmod(0o755)
        self._configure(library, pausable=pausable)

    def __enter__(self) -> Self:
        try:
            self.start_controller()
            for node in self.nodes:
                stepd = str(self._programs / "usr" / "sbin" / "slurmstepd")
                self._stack.callback(self._serve("slurmd", node, "-N", node, "-d", stepd).stop, 5.0)
            self.until(lambda: self.run("sinfo", "-h", "-p", "ml", "-o", "%T").split() == ["idle"], "idle nodes")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
        self.stop_controller()
        for node in self.off:
            self.turn_off(node)

    def start_controller(self) -> None:
        """Start the controller, which knows the jobs that it knew."""
        self._controller = self._serve("slurmctld", "slurmctld")
        self._controller.wait_until(self._up, READY_S)

    def stop_controller(self) -> None:
        """Stop it; jobs go on."""
        if self._controller is not None:
            self._controller.stop(10.0)

    def run(self, *command: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            [str(self.commands / command[0]), *command[1:]],
            env={**os.environ, "SLURM_CONF": str(self.conf)},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def submit(self, workload: str, *options: str, signal: str = "", gpus: int = 1, waits: bool = False) -> int:
        """Submit a job and, unless it `waits`, see it run; `signal` goes into its script."""
        script = self._folder / "job.sh"
        script.write_text(SCRIPT.format(option=f"#SBATCH --signal={signal}" if signal else "", folder=self._folder))
        more = ("--parsable", "-o", "/dev/null", "-c", "1", f"--gres=gpu:{gpus}", "-p", "ml", "-J", workload)
        job = int(self.run("sbatch", *more, *options, str(script)))
        if not waits:
            self.until(lambda: self.job_log(job)[:1] == ["start 0"], f"job {job} runs")
        return job

    def job_log(self, job: int) -> list[str]:
        """What happened to a job, as it says."""
        file = self._folder / f"said-{job}"
        return file.read_text().splitlines() if file.exists() else []

    def show(self, job: int) -> dict[str, str]:
        """A job as `scontrol` shows it."""
        parts = self.run("scontrol", "-o", "show", "job", str(job)).split(" ")
        fields = dict(part.split("=", 1) for part in parts if "=" in part)
        return {**fields, "Comment": self.run("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%k").strip()}

    def queue(self) -> str:
        """All that Flyball might change of the jobs and nodes."""
        jobs = self.run("squeue", "-h", "-S", "i", "-o", "%i|%T|%p|%N|%k")
        return jobs + self.run("sinfo", "-h", "-N", "-o", "%N|%E")

    def state(self, node: str, partition: str = "ml") -> str:
        """State and reason of a node."""
        return self.run("sinfo", "-h", "-n", node, "-p", partition, "-o", "%T %E").strip()

    def platform(self, **changes: Any) -> SlurmPlatform:
        """A platform of its own, as a process that has just started has it."""
        return SlurmPlatform(PlatformConfig(**self.entry(**changes)))

    def entry(self, **changes: Any) -> dict[str, Any]:
        """Its settings."""
        return {"driver": "slurm", "conf": str(self.conf), "partitions": ("ml",), **changes}

    def clear(self) -> None:
        """End all jobs, and give all nodes back."""
        self.run("scancel", "--user", getpass.getuser())
        self.until(lambda: not self.run("squeue", "-h"), "no job is left")
        for node in self.nodes:
            if "drain" in self.state(node):
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    @contextmanager
    def no_machines(self) -> Generator[None]:
        """Whatever is turned on does not come."""
        broken = self._folder / "broken"
        broken.touch()
        try:
            yield
        finally:
            broken.unlink()

    def turn_off(self, node: str) -> None:
        """End the daemon of a node that was turned on."""
        file = self._folder / f"{node}.on"
        if file.exists():
            with suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)
            file.unlink()

    def _nodes_and_jobs(self) -> str:
        return self.run("sinfo", "-N", "-h", "-o", "%N %T %E") + self.run("squeue", "-h")

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not true():
            assert time.monotonic() < deadline, f"waited in vain: {what}; {self._nodes_and_jobs()}"
            time.sleep(0.05)

    def _configure(self, plugins: Path, *, pausable: bool) -> None:
        port, *ports = free_ports(1 + NODES + OFF)
        host = socket.gethostname().partition(".")[0]
        conf = CONF.format(
            host=host, loopback=LOOPBACK, port=port, user=getpass.getuser(), plugins=plugins, folder=self._folder
        )
        for node, at in zip([*self.nodes, *self.off], ports, strict=True):
            state = " State=CLOUD" if node in self.off else ""
            address = f"NodeHostname={host} NodeAddr={LOOPBACK} Port={at}"
            conf += f"NodeName={node} {address} CPUs=16 Gres=gpu:h100:{GPUS}{state}\n"
        names, off = ",".join(self.nodes), ",".join(self.off)
        conf += f"PartitionName=ml Nodes={names} Default=YES State=UP PreemptMode=OFF\n"
        conf += f"PartitionName=other Nodes={names} State=UP PreemptMode=OFF\n"
        conf += f"PartitionName=burst Nodes={off} State=UP PreemptMode=OFF\n"
        if pausable:
            conf += f"{GANGS}PartitionName=pausable Nodes={names} State=UP PreemptMode=SUSPEND\n"
        self.conf.write_text(conf)
        for i in range(GPUS):  # plain files do: nobody opens them
            (self._folder / "dev" / f"gpu{i}").touch()
        gpus = f"Name=gpu Type=h100 File={self._folder}/dev/gpu[0-{GPUS - 1}]"
        (self._folder / "gres.conf").write_text(f"NodeName={names},{off} {gpus}\n")
        for name, text in (("resume", RESUME), ("suspend", SUSPEND)):
            script = text.format(
                folder=self._folder, conf=self.conf, commands=self.commands, programs=self._programs,
                libraries=self._libraries,
            )  # fmt: skip
            (self._folder / name).write_text(script)
            (self._folder / name).chmod(0o755)

    def _serve(self, daemon: str, name: str, *arguments: str) -> Server:
        environment = {"LD_LIBRARY_PATH": self._libraries, "SLURM_CONF": str(self.conf)}
        command = [str(self._programs / "usr" / "sbin" / daemon), "-D", *arguments]
        return Server(name, command, self._folder / f"{name}.log", environment=environment)

    def _up(self) -> bool:
        command = [str(self.commands / "scontrol"), "ping"]
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0
