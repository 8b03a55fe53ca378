"""Two actuators on a real control plane under faults, and what the API server's audit log says that they did.

The oracles stand at the platform: a write names its decision by its field manager, so the log tells how often each
decision had an effect, whatever the actuators say. The decisions are scales of many Deployments, among them some that
must have no effect: on a workload that is not allowed, expired, or told twice.
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
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml
from tests.actuators.loop import outcomes, publish
from tests.actuators.samples import S, scale, spec
from tests.conftest import ROOT
from tests.kubernetes.cluster import Cluster

from flyball_contracts.records import AnyDecision, Outcome

ACTUATORS = ("a", "b")
FAULTS = ("kill", "kill", "pause", "long pause", "stall", "crash", "somebody")
WORKLOADS = 16
MOST = 6
PACE_S = 0.1
FAULT_S = (0.6, 2.5)
REST_S = 120.0
FOLDERS = ("", "cli", "contracts", "actuators", "streams", "models", "collectors", "simulator")


class Sent(NamedTuple):
    """A decision, and whether it may have an effect."""

    decision: AnyDecision
    allowed: bool


class Verdict(NamedTuple):
    """What came of all decisions: counts of final outcomes, and the oracles that were broken, in words."""

    last: Counter[str]
    writes: int
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
) -> Verdict:
    """Send `count` decisions under faults, wait until each has its final outcome, and judge by the audit log."""
    chance = random.Random(seed)
    names = [f"w{i}" for i in range(WORKLOADS)]
    for name in (*names, "bank"):
        cluster.deploy(name, 2, gpus=0, workload=name, cold_start="100ms")
    publish(bootstrap, *(spec(name, cell=_cell(name)) for name in (*names, "bank")))
    fleet = Fleet(cluster, bootstrap, folder)
    try:
        with _faults(fleet, cluster, chance.randrange(1 << 30)) as faults:
            sent = _send(cluster, bootstrap, chance, names, count, progress)
        found = _settled(bootstrap, sent)
    finally:
        fleet.stop()
    return _judged(cluster, sent, found, faults)


def _send(
    cluster: Cluster,
    bootstrap: str,
    chance: random.Random,
    names: list[str],
    count: int,
    progress: Callable[[int], object],
) -> list[Sent]:
    """Decisions on what runs, some of them twice, late, out of order, or about what is nobody's business."""
    sent: list[Sent] = []
    held: list[AnyDecision] = []
    for i in range(count):
        now_ns, roll = time.time_ns(), chance.random()
        name = chance.choice(names) if roll > 0.05 else "bank"
        before = _replicas(cluster, name)
        after = chance.choice([n for n in range(MOST + 1) if n != before])
        late = 0.05 < roll < 0.09
        made_ns = now_ns - 300 * S * late
        decision = scale(
            f"d{i}",
            workload=name,
            before=before,
            after=after,
            time_ns=made_ns,
            ttl_s=60 if late else 90,
            cell=_cell(name),
        )
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


def _cell(name: str) -> str:
    """Cells are many, so that each actuator has some."""
    return f"cell-{name[-1]}"


def _replicas(cluster: Cluster, name: str) -> int:
    while True:
        try:
            return int(cluster.plane.get(cluster.deployments(name))["spec"]["replicas"])
        except (OSError, AssertionError):  # the API server is down just now
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
    wanted, until = {one.decision.id for one in sent}, time.monotonic() + REST_S
    while True:
        found = outcomes(bootstrap)
        if {o.decision for o in found if o.final} >= wanted or time.monotonic() > until:
            return found
        time.sleep(1.0)


def _judged(cluster: Cluster, sent: list[Sent], found: list[Outcome], faults: Counter[str]) -> Verdict:
    written, unanswered = _written(cluster)
    lasts: dict[str, set[str]] = {}
    outcomes_of = {outcome.decision: f"{outcome.status}: {outcome.answer}{outcome.detail}" for outcome in found}
    for outcome in found:
        if outcome.final:
            lasts.setdefault(outcome.decision, set()).add(outcome.status)
    broken: list[str] = []
    for one in sent:
        id_, times = one.decision.id, written[one.decision.id]
        last = lasts.get(id_, set())
        listed = ", ".join(sorted(last)) or outcomes_of.get(id_, "nothing")
        if times > 1:
            broken.append(f"{id_} was written {times} times")
        if times and not one.allowed:
            broken.append(f"{id_} was written, and had no right to")
        if len(last) != 1:
            broken.append(f"{id_} has {len(last)} final outcomes: {listed}")
        unsure = id_ in unanswered or _unlogged(cluster, one.decision, found)
        if last == {"done"} and not times and not unsure:
            broken.append(f"{id_} is said to be done, and was never written")
        if last == {"refused"} and times:
            broken.append(f"{id_} is said to be refused, and was written")
    known = {one.decision.id for one in sent}
    broken += [f"{id_} was written, and nobody has sent it" for id_ in written if id_ not in known]
    final_outcomes = Counter("/".join(sorted(lasts.get(one.decision.id, {"none"}))) for one in sent)
    return Verdict(final_outcomes, written.total(), faults, broken)


def _unlogged(cluster: Cluster, decision: AnyDecision, found: list[Outcome]) -> bool:
    """Whether the API server was killed meanwhile: it may have stored a write and not lived to log it."""
    ended_ns = max(outcome.time_ns for outcome in found if outcome.decision == decision.id)
    return any(decision.time_ns <= crash_ns <= ended_ns for crash_ns in cluster.plane.crashes_ns)


def _written(cluster: Cluster) -> tuple[Counter[str], set[str]]:
    """How often each decision was written, by the audit log, and those of which the API server gave up a write.

    A server that stood still finds that the client has left, and gives up (504); the store may have the write already.
    """
    found, unanswered = Counter[str](), set[str]()
    for call in cluster.plane.calls():
        about: dict[str, Any] = call["objectRef"]
        query = parse_qs(urlsplit(str(call["requestURI"])).query)
        if about.get("namespace") != cluster.namespace or call["verb"] != "update" or "dryRun" in query:
            continue
        decision, status = query["fieldManager"][0].removeprefix("flyball-"), call["responseStatus"]["code"]
        if status == 200:
            found[decision] += 1
        elif status >= 500:
            unanswered.add(decision)
    return found, unanswered


def _config(cluster: Cluster, bootstrap: str, folder: Path, name: str) -> dict[str, Any]:
    many = {"actions": 1_000_000}
    return {
        "kafka": {"bootstrap": bootstrap},
        "actuator": {
            "mode": "live",
            "group": "actuation",
            "allow": ["w*"],
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
