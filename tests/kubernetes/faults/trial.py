"""Two actuators on a real control plane under faults, and what the API server's audit log says that they did.

The oracles stand at the platform: a write names its decision by its field manager, so the log tells how often each
decision had an effect, whatever the actuators say. The decisions scale and preempt many Deployments, move their pods,
and stop and start Jobs and JobSets, among them some that must have no effect: on a workload that is not allowed,
expired, or told twice.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml
from tests.actuators.loop import outcomes, publish
from tests.actuators.samples import S, inventory, migrate, preempt, scale, spec
from tests.conftest import ROOT
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.delegation.training import job_set

from flyball_contracts.records import AnyDecision, Migrate, Outcome

ACTUATORS = ("a", "b")
FAULTS = ("kill", "kill", "pause", "long pause", "stall", "crash", "somebody")
WORKLOADS, JOBS, JOB_SETS = 16, 8, 4
OF_JOB = 2
MOST = 6
PACE_S = 0.1
FAULT_S = (0.6, 2.5)
REST_S = 300.0
EFFECTS = ("number", "job", "job set", "eviction")
_KINDS = {"deployments": "number", "jobs": "job", "jobsets": "job set", "nodes": "cordon"}
FOLDERS = ("", "cli", "contracts", "actuators", "streams", "models", "collectors", "simulator")


class Sent(NamedTuple):
    """A decision, and whether it may have an effect."""

    decision: AnyDecision
    allowed: bool


class Verdict(NamedTuple):
    """What came of all decisions: counts of final outcomes, effects, and the oracles that were broken, in words.

    ``effects`` counts writes of a number, stops and starts of a Job or JobSet, and evictions.
    """

    last: Counter[str]
    effects: Counter[str]
    faults: Counter[str]
    broken: list[str]


class Fleet:
    """The actuator processes, each with a ledger of its own."""

    def __init__(self, cluster: Cluster, bootstrap: str, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ACTUATORS:
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(_config(cluster, bootstrap, folder, name)))
            self.start(name)

    def start(self, name: str) -> None:
        """Start an actuator with the ledger that it had."""
        path = os.pathsep.join(str(ROOT / part) for part in FOLDERS)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "flyball_cli", "actuate", "--config", str(self._folder / f"{name}.yaml")],
                env={**os.environ, "PYTHONPATH": path},
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        """End it as a crash would."""
        self._processes[name].kill()
        self._processes[name].wait()

    def pause(self, name: str, for_s: float) -> None:
        """Let it stand still."""
        self._processes[name].send_signal(signal.SIGSTOP)
        time.sleep(for_s)
        self._processes[name].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all."""
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def trial(
    cluster: Cluster,
    bootstrap: str,
    folder: Path,
    count: int,
    seed: int,
    progress: Callable[[int], object] = lambda _: None,
    *,
    with_job_sets: bool = False,
) -> Verdict:
    """Send `count` decisions under faults, wait until each has its final outcome, and judge by the audit log."""
    chance = random.Random(seed)
    names = [f"w{i}" for i in range(WORKLOADS)]
    jobs = [f"j{i}" for i in range(JOBS)]
    for name in (*names, "bank"):
        cluster.deploy(name, 2, gpus=0, workload=name, cold_start="100ms")
    for name in jobs:
        cluster.job(name, OF_JOB, gpus=0, workload=name)
    ends = {name: cluster.jobs(name) for name in jobs}
    if with_job_sets:
        ends |= {name: job_set(cluster, name, OF_JOB, gpus=0) for name in (f"s{i}" for i in range(JOB_SETS))}
    publish(bootstrap, *(spec(name, cell=_cell(name)) for name in (*names, *ends, "bank")))
    nodes = cluster.plane.get("/api/v1/nodes")["items"]
    publish(bootstrap, *(inventory(node["metadata"]["name"], cell=f"cell-{i}") for i, node in enumerate(nodes)))
    earlier, _, _ = _written(cluster)  # nodes belong to all tests
    fleet = Fleet(cluster, bootstrap, folder)
    try:
        with _faults(fleet, cluster, chance.randrange(1 << 30)) as faults:
            sent = _send(cluster, bootstrap, chance, _Maker(cluster, chance, names, ends), count, progress)
        found = _settled(bootstrap, sent)
    finally:
        fleet.stop()
    return _judged(cluster, sent, found, faults, earlier)


def _send(
    cluster: Cluster,
    bootstrap: str,
    chance: random.Random,
    make: "_Maker",
    count: int,
    progress: Callable[[int], object],
) -> list[Sent]:
    """Decisions on what runs, some of them twice, late, out of order, or about what is nobody's business."""
    sent: list[Sent] = []
    held: list[AnyDecision] = []
    for i in range(count):
        roll = chance.random()
        decision = make(f"d{i}", allowed=roll > 0.05, late=0.05 < roll < 0.09)
        sent.append(Sent(decision, roll > 0.09))
        if chance.random() < 0.05:
            held.append(decision)  # it comes after newer ones
        else:
            publish(bootstrap, decision)
        if chance.random() < 0.1:
            publish(bootstrap, chance.choice(sent).decision)
        if held and chance.random() < 0.1:
            publish(bootstrap, held.pop(0))
        progress(i + 1)
        time.sleep(chance.expovariate(1.0 / PACE_S))
    publish(bootstrap, *held)
    return sent


class _Maker:
    """Makes a decision on what runs: scales, preemptions with and without victims, moves, stops and starts of Jobs.

    ``ends`` are what ends some day, Jobs and JobSets, each with its path.
    """

    def __init__(self, cluster: Cluster, chance: random.Random, names: list[str], ends: dict[str, str]) -> None:
        self._cluster, self._chance, self._names, self._ends = cluster, chance, names, ends
        nodes = _read(cluster, "/api/v1/nodes")["items"]
        self._cells = {node["metadata"]["name"]: f"cell-{i}" for i, node in enumerate(nodes)}

    def __call__(self, id_: str, *, allowed: bool, late: bool) -> AnyDecision:
        made_ns = time.time_ns() - 300 * S * late
        name = self._chance.choice(self._names) if allowed else "bank"
        more: dict[str, Any] = {"time_ns": made_ns}
        what = self._chance.random()
        if what < 0.2 and allowed and (pod := self._movable()) is not None:
            name, node = pod["metadata"]["labels"]["app"], pod["spec"]["nodeName"]
            replica = pod["metadata"]["name"]
            more |= {"workload": name, "cell": _cell(name)}
            return migrate(id_, replica=replica, from_node=node, from_device="", **more)
        if what < 0.35 and allowed:
            name = self._chance.choice([*self._ends])
            more |= {"workload": name, "cell": _cell(name)}
            if _read(self._cluster, self._ends[name])["spec"].get("suspend"):
                return scale(id_, before=0, after=OF_JOB, **more)
            return preempt(id_, before=OF_JOB, after=0, checkpoint=False, **more)
        before = int(_read(self._cluster, self._cluster.deployments(name))["spec"]["replicas"])
        more |= {"workload": name, "cell": _cell(name)}
        if what < 0.5 and before:
            pods = _read(self._cluster, f"/api/v1/namespaces/{self._cluster.namespace}/pods")["items"]
            own = [one["metadata"]["name"] for one in pods if one["metadata"]["labels"].get("app") == name]
            victims = (self._chance.choice(own),) if own and what < 0.42 else ()
            return preempt(id_, before=before, after=before - 1, victims=victims, checkpoint=False, **more)
        after = self._chance.choice([n for n in range(MOST + 1) if n != before])
        return scale(id_, before=before, after=after, ttl_s=60 if late else 90, **more)

    def _movable(self) -> Any:
        """A pod whose node is in the cell of its workload."""
        pods = _read(self._cluster, f"/api/v1/namespaces/{self._cluster.namespace}/pods")["items"]
        found = [
            one
            for one in pods
            if (name := one["metadata"]["labels"].get("app")) in self._names
            and self._cells.get(one["spec"].get("nodeName")) == _cell(name)
        ]
        return self._chance.choice(found) if found else None


def _cell(name: str) -> str:
    """Cells are many, so that each actuator has some."""
    return f"cell-{name[-1]}"


def _read(cluster: Cluster, path: str) -> Any:
    while True:
        try:
            return cluster.plane.get(path)
        except (OSError, HTTPException, AssertionError):  # the API server is down just now, or was killed halfway
            time.sleep(0.1)


@contextmanager
def _faults(fleet: Fleet, cluster: Cluster, seed: int) -> Generator[Counter[str]]:
    """Kill and pause actuators and the API server until the body is over; then all of them run."""
    chance, over, counted = random.Random(seed), threading.Event(), Counter[str]()

    def strike() -> None:
        while not over.wait(chance.uniform(*FAULT_S)):
            what, name = chance.choice(FAULTS), chance.choice(ACTUATORS)
            counted[what] += 1
            if what == "kill":
                fleet.kill(name)
                time.sleep(chance.uniform(0.0, 1.0))
                fleet.start(name)
            elif what == "pause":
                fleet.pause(name, chance.uniform(0.1, 3.0))
            elif what == "long pause":
                fleet.pause(name, chance.uniform(11.0, 13.0))  # longer than the session of its group
            elif what == "stall":
                cluster.plane.stall(chance.uniform(0.5, 7.0))  # beyond the driver's patience, too
            elif what == "crash":
                cluster.plane.crash(chance.uniform(0.0, 2.0))
            else:
                body = {"spec": {"replicas": chance.randrange(MOST)}}
                path = f"{cluster.deployments(f'w{chance.randrange(WORKLOADS)}')}?fieldManager=somebody"
                cluster.plane.request("PATCH", path, body, content_type="application/merge-patch+json")

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield counted
    finally:
        over.set()
        thread.join()


def _settled(bootstrap: str, sent: list[Sent]) -> list[Outcome]:
    """All outcomes, once every decision has a final outcome, or nothing is said any more."""
    wanted, known, until = {one.decision.id for one in sent}, 0, 0.0
    while True:
        found = outcomes(bootstrap)
        if len(found) > known:
            known, until = len(found), time.monotonic() + REST_S
        if {o.decision for o in found if o.final} >= wanted or time.monotonic() > until:
            return found
        time.sleep(1.0)


def _judged(
    cluster: Cluster, sent: list[Sent], found: list[Outcome], faults: Counter[str], earlier: Counter[tuple[str, str]]
) -> Verdict:
    written, unanswered, unnamed = _written(cluster)
    written -= earlier
    effects = _effects(written)
    lasts: dict[str, set[str]] = {}
    outcomes_of = {outcome.decision: f"{outcome.status}: {outcome.answer}{outcome.detail}" for outcome in found}
    for outcome in found:
        if outcome.final:
            lasts.setdefault(outcome.decision, set()).add(outcome.status)
    broken: list[str] = [f"a write names no decision: {call}" for call in unnamed]
    for one in sent:
        id_, times = one.decision.id, effects[one.decision.id]
        last = lasts.get(id_, set())
        listed = ", ".join(sorted(last)) or outcomes_of.get(id_, "nothing")
        if times > 1:
            broken.append(f"{id_} was written {times} times")
        if times and not one.allowed:
            broken.append(f"{id_} was written, and had no right to")
        if len(last) != 1:
            there = _there(cluster, one.decision.workload)
            broken.append(f"{id_} has {len(last)} final outcomes: {listed}; its pods: {there}")
        unsure = id_ in unanswered or _unlogged(cluster, one.decision, found)
        if isinstance(one.decision, Migrate):
            moved = {what.rpartition("/")[2] for who, what in written if who == id_ and what.startswith("eviction")}
            if moved - {one.decision.replica}:
                broken.append(f"{id_} evicted {moved}, and was to move {one.decision.replica}")
        elif last == {"done"} and not times and not unsure:
            broken.append(f"{id_} is said to be done, and was never written")
        if last == {"refused"} and times:
            broken.append(f"{id_} is said to be refused, and was written")
    for node in cluster.plane.get("/api/v1/nodes")["items"]:  # no move is off a failing device
        if node["spec"].get("unschedulable"):
            decision = node["metadata"].get("annotations", {}).get("flyball.dev/cordoned-for")
            broken.append(f"{node['metadata']['name']} is still cordoned for {decision}")
    known = {one.decision.id for one in sent}
    broken += [f"{id_} was written, and nobody has sent it" for id_, _ in written if id_ not in known]
    final_outcomes = Counter("/".join(sorted(lasts.get(one.decision.id, {"none"}))) for one in sent)
    by_kind = Counter[str]()
    for (_, what), times in written.items():
        by_kind[what.partition("/")[0]] += times
    return Verdict(final_outcomes, by_kind, faults, broken)


def _there(cluster: Cluster, workload: str) -> str:
    """The pods of a workload as the platform has them now, with phase and node: what an operation may wait for."""
    pods = _read(cluster, f"/api/v1/namespaces/{cluster.namespace}/pods")["items"]
    own = (pod for pod in pods if pod["metadata"]["labels"].get("app") == workload)
    return (
        ", ".join(
            f"{pod['metadata']['name']} {pod['status'].get('phase')} on {pod['spec'].get('nodeName', 'no node')}"
            for pod in own
        )
        or "none"
    )


def _effects(written: Counter[tuple[str, str]]) -> Counter[str]:
    """Effects by decision: a mark on a pod and a cordon are none yet, and a pod goes once however often it is told."""
    found = Counter[str]()
    for (decision, what), times in written.items():
        if what.partition("/")[0] in EFFECTS:
            found[decision] += 1 if what.startswith("eviction") else times
    return found


def _unlogged(cluster: Cluster, decision: AnyDecision, found: list[Outcome]) -> bool:
    """Whether the API server was killed meanwhile: it may have stored a write and not lived to log it."""
    ended_ns = max((outcome.time_ns for outcome in found if outcome.decision == decision.id), default=0)
    return any(decision.time_ns <= crash_ns <= ended_ns for crash_ns in cluster.plane.crashes_ns)


def _written(cluster: Cluster) -> tuple[Counter[tuple[str, str]], set[str], list[str]]:
    """How often each decision wrote what, by the audit log; decisions of which the API server gave up a write.

    A server that stood still finds that the client has left, and gives up (504); the store may have the write already.
    Last come writes that name no decision.
    """
    found, unanswered, unnamed = Counter[tuple[str, str]](), set[str](), list[str]()
    for call in cluster.plane.calls():
        about: dict[str, Any] = call["objectRef"]
        query = parse_qs(urlsplit(str(call["requestURI"])).query)
        ours = about.get("namespace") == cluster.namespace or about["resource"] == "nodes"
        if not ours or call["verb"] in ("get", "list", "watch") or "dryRun" in query:
            continue
        manager, status = query.get("fieldManager", [""])[0], call["responseStatus"]["code"]
        if not manager.startswith("flyball-"):
            unnamed.append(f"{call['verb']} {call['requestURI']}")
            continue
        decision = manager.removeprefix("flyball-")
        what = about.get("subresource") if about["resource"] == "pods" else _KINDS[about["resource"]]
        if status in (200, 201):
            found[decision, f"{what or 'mark'}/{about.get('name', '')}"] += 1
        elif status >= 500:
            unanswered.add(decision)
    return found, unanswered, unnamed


def _config(cluster: Cluster, bootstrap: str, folder: Path, name: str) -> dict[str, Any]:
    many = {"actions": 1_000_000}
    return {
        "kafka": {"bootstrap": bootstrap},
        "actuator": {
            "mode": "live",
            "group": "actuation",
            "allow": ["w*", "j*", "s*"],
            "kill_switch": str(folder / "stop"),
            "ledger": str(folder / f"{name}.ledger"),
            "per_target": many,
            "per_cell": many,
            "blast_radius": {"share": 1.0, "replicas": 100_000, "most": 100_000},
            "platforms": [
                {
                    "cells": ["*"],
                    "driver": "kubernetes",
                    "kubeconfig": str(cluster.plane.kubeconfig()),
                    "namespaces": [cluster.namespace],
                    "timeout_s": 3.0,
                    "poll_s": 0.2,
                }
            ],
        },
    }
