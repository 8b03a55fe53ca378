"""What two live actuators do to a real Kubernetes control plane under faults, by the API server's own audit log.

A real Kafka, etcd, API server, controllers and kwok nodes on this machine; two actuators of one group with a ledger
each. Decisions scale and preempt Deployments, move their pods by eviction, and suspend and resume Jobs; they come
twice, late, out of order, expired, and about a workload that is not allowed. Meanwhile actuators
are killed and stopped, some for longer than their session; the API server is killed, and stalls beyond the driver's
patience; and another client writes as well. The audit log names the decision of each write.

``--in-process`` is the same for many more decisions: three actuators in this process with the real loop, guard,
ledger, lease and audit trail, over topics in memory and a platform that keeps an account. Steps end in crashes, answers
are lost after the effect, leases run out, clocks jump by days, and ledgers are damaged, lost or old.

The last line times the guard alone: a scale-out judged among many grants, workloads and nodes, with a quota and limits.

``--quick`` sends few decisions. The exit status is 1 when an oracle is broken.
"""

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.common.report import machine
from tests.actuators.chaos import Chaos
from tests.actuators.in_memory.site import Site, still_time
from tests.actuators.loop import PARTITIONS
from tests.actuators.samples import NOW, S, inventory, scale, spec
from tests.actuators.service.test_stateful import CONFIG
from tests.brokers import kafka
from tests.brokers.kafka import RealKafka
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import ControlPlane, missing
from tests.kubernetes.faults.trial import Verdict, trial

from flyball_actuators.guard import Guard, GuardState
from flyball_actuators.parameters import ActuatorParameters, BlastRadiusParameters, RateParameters
from flyball_actuators.world import WorldTables
from flyball_contracts.config import parse_config
from flyball_contracts.records import Allocation, Inventory, SubjectState

ROOT = Path(__file__).resolve().parents[1]
DECISIONS, QUICK_DECISIONS = 3000, 100
IN_PROCESS, OF_ONE_SITE = 100_000, 1_000
JUDGED, QUICK_JUDGED = 20_000, 2_000
WORKLOADS, WORKLOADS_AT_ONCE = 1_000, 16
console = Console()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say by the exit status whether all held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, help=f"decisions in all ({DECISIONS}; with --quick {QUICK_DECISIONS})")
    parser.add_argument("--seed", type=int, default=1, help="seed of the decisions and the faults")
    parser.add_argument("--in-process", action="store_true", help=f"no servers ({IN_PROCESS} decisions)")
    parser.add_argument("--quick", action="store_true", help="few decisions")
    parser.add_argument("--controlplane", type=Path, metavar="FOLDER", help="what infra/controlplane/fetch prints")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    options = parser.parse_args(arguments)
    if options.in_process:
        return _in_process(options.decisions or (IN_PROCESS // 50 if options.quick else IN_PROCESS), options)
    built = sorted((ROOT / ".cache" / "controlplane").glob("*"))
    binaries = options.controlplane or (built[-1] if built else ROOT / ".cache" / "controlplane")
    for reason in (missing(binaries), kafka.missing()):
        if reason is not None:
            parser.error(reason)
    count = options.decisions or (QUICK_DECISIONS if options.quick else DECISIONS)
    verdict, took_s = _tried(binaries, count, options.seed)
    guard = _guards(QUICK_JUDGED if options.quick else JUDGED)
    _show(verdict, took_s, count, guard)
    if options.json is not None:
        figures: dict[str, Any] = {
            **machine(),
            "decisions": count,
            "seed": options.seed,
            "seconds": took_s,
            "writes": dict(verdict.effects),
            "final_outcomes": dict(verdict.last),
            "faults": dict(verdict.faults),
            "broken": verdict.broken,
            "guard_us": guard,
        }
        options.json.write_text(json.dumps(figures, indent=1))
    return 1 if verdict.broken else 0


def _in_process(count: int, options: argparse.Namespace) -> int:
    """Sites of some decisions each, half of them on a platform that does not know decisions by their ids."""
    broken: list[str] = []
    totals: dict[str, Counter[str]] = {name: Counter() for name in ("last words", "moves", "platform")}
    logging.disable(logging.WARNING)
    started_s = time.monotonic()
    sites = range(-(-count // OF_ONE_SITE))
    for i in track(sites, "sites", console=Console(stderr=True), transient=True):
        for problem in _site(options.seed * 1_000_003 + i, min(OF_ONE_SITE, count), i % 2 == 0, totals):
            broken.append(f"site {i}: {problem}")
    took_s = time.monotonic() - started_s
    table = Table(
        "what", "which", "number", title=f"{len(sites) * min(OF_ONE_SITE, count)} decisions in {took_s:.0f} s"
    )
    for what, counts in totals.items():
        for which, number in sorted(counts.items()):
            table.add_row(what, which, str(number))
    table.add_row("broken oracles", "", str(len(broken)), style="bold red" if broken else "bold green")
    console.print(table)
    for line in broken[:20]:
        console.print(f"  {line}")
    guard = _guards(QUICK_JUDGED if options.quick else JUDGED)
    console.print(_summary(guard))
    if options.json is not None:
        figures = {**machine(), "seed": options.seed, "seconds": took_s, "broken": broken, "guard_us": guard, **totals}
        options.json.write_text(json.dumps(figures, indent=1))
    return 1 if broken else 0


def _site(seed: int, count: int, tracks: bool, totals: dict[str, Counter[str]]) -> list[str]:
    chance = random.Random(seed)
    names = [*(f"w{i}" for i in range(WORKLOADS_AT_ONCE)), "bank"]
    with tempfile.TemporaryDirectory(prefix="flyball-actuation-") as folder:
        site = Site(
            Path(folder), CONFIG, [spec(n, cell=f"cell-{n[-1]}") for n in names], allowed=names[:-1],
            actuators=("a", "b", "c"), partitions=4, tracks=tracks, chance=chance,
        )  # fmt: skip
        chaos = Chaos(site, chance, names)
        with still_time(site):
            for process in site.processes:
                process.start()
            chaos.turn(3)
            chaos.send("scale")
            while chaos.made < count:
                chaos.move()
            site.settle()
        for process in site.processes:
            if process.alive:
                process.kill()
        totals["last words"].update(words[0].status for words in site.final_outcomes().values())
        totals["moves"].update(chaos.moves)
        totals["platform"].update({"effects": len(site.account.effects)})
        return site.broken()


def _tried(binaries: Path, count: int, seed: int) -> tuple[Verdict, float]:
    with tempfile.TemporaryDirectory(prefix="flyball-actuation-") as name:
        folder = Path(name)
        (folder / "plane").mkdir()
        with RealKafka(PARTITIONS) as broker, ControlPlane(binaries, folder / "plane") as plane:
            plane.nodes(4)
            cluster = Cluster(plane)
            cluster.grant()
            steps = iter(track(range(count), "decisions", console=Console(stderr=True), transient=True))
            started_s = time.monotonic()
            verdict = trial(cluster, broker.bootstrap, folder, count, seed, lambda _: next(steps, None))
            return verdict, time.monotonic() - started_s


QUOTAS = {"far from": 100_000, "near": 5_000}
"""Replicas of a tenant's quota."""
_POLICIES = """\
policies:
  - {name: fair, quota: {replicas: REPLICAS, gpus: 100000}}
  - name: calm
    limits: [{per: tenant, window_s: 600, replicas: 100000}, {per: workload, window_s: 600, usd_per_hour: 100000}]
"""


def _guard(count: int, quota: int) -> dict[str, float]:
    """Microseconds of one judgement, at the median and the 99th percentile, and those of CPU time, at the latter.

    ``quota`` is of replicas; a tenant holds some 4,300, and near its quota the guard has to count exactly. Each
    decision is judged twice, as it is once more right before its call. A cell of as many nodes of 8 GPUs as it has
    workloads, each on a node of its own. One tenant's replicas take a GPU, the other's a half; a quota and limits bind
    both. Before each decision come inventories of a twentieth of the nodes.
    """
    many, policies = RateParameters(actions=10_000), _POLICIES.replace("REPLICAS", str(quota))
    config = msgspec.structs.replace(
        parse_config(policies, ActuatorParameters), mode="live", per_target=many, per_cell=many, max_age_s=1e9,
        blast_radius=BlastRadiusParameters(replicas=10_000, most=10_000),
    )  # fmt: skip
    names = [f"w{i}" for i in range(WORKLOADS)]
    tables, nodes = WorldTables(), list[Inventory]()
    for i, name in enumerate(names):
        tables.take(msgspec.structs.replace(spec(name), gpus_per_replica=(1.0, 0.5)[i % 2], tenant=("u", "t")[i % 2]))
        runs = tuple(Allocation(workload=name, replica=f"{name}-{gpu}", devices=(gpu,)) for gpu in range(8))
        nodes.append(msgspec.structs.replace(inventory(f"n{i}", devices=8, price=32.0), allocations=runs))
        tables.take(nodes[-1])
    guard, state, shown = Guard(config), GuardState(), SubjectState(replicas=8, ready=8)
    took_us: list[float] = []
    worked_us: list[float] = []
    for i in range(count):
        # One decision a second is let through: 600 grants in the window.
        decision = scale(f"d{i}", workload=names[i % WORKLOADS], before=8, after=9, time_ns=NOW + i * S)
        for n in range(WORKLOADS // 20):
            tables.take(nodes[(i * WORKLOADS // 20 + n) % WORKLOADS])
        for _ in ("first look", "second look"):
            started_ns, worked_ns = time.perf_counter_ns(), time.thread_time_ns()
            state, verdict = guard.authorise(state, decision, NOW + i * S, tables.view(""), shown)
            worked_us.append((time.thread_time_ns() - worked_ns) / 1e3)
            took_us.append((time.perf_counter_ns() - started_ns) / 1e3)
            assert verdict.status == "accepted", verdict
    (p50, p99), (_, worked) = (np.percentile(us[count // 5 :], (50, 99)) for us in (took_us, worked_us))
    return {"p50": round(float(p50), 1), "p99": round(float(p99), 1), "p99_cpu": round(float(worked), 1)}


def _guards(count: int) -> dict[str, dict[str, float]]:
    return {where: _guard(count, quota) for where, quota in QUOTAS.items()}


def _summary(guard: dict[str, dict[str, float]]) -> str:
    times = "\n".join(
        f"guard, {where} its quota: {us['p50']:g} µs at p50, {us['p99']:g} µs at p99 ({us['p99_cpu']:g} of CPU)"
        for where, us in guard.items()
    )
    return f"{times}\nto scale out one of {WORKLOADS} workloads on {WORKLOADS} nodes of 8 GPUs, with two limits"


def _show(verdict: Verdict, took_s: float, count: int, guard: dict[str, dict[str, float]]) -> None:
    table = Table("what", "number", title=f"{count} decisions in {took_s:.0f} s, judged by the audit log")
    for status, number in sorted(verdict.last.items()):
        table.add_row(f"last word {status}", str(number))
    for what, number in sorted(verdict.effects.items()):
        table.add_row(f"write: {what}", str(number))
    for fault, number in sorted(verdict.faults.items()):
        table.add_row(f"fault: {fault}", str(number))
    table.add_row("broken oracles", str(len(verdict.broken)), style="bold red" if verdict.broken else "bold green")
    console.print(table)
    for line in verdict.broken:
        console.print(f"  {line}")
    console.print(_summary(guard))


if __name__ == "__main__":
    sys.exit(main())
