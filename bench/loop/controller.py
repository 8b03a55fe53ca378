"""What `flyball controller` costs on a large cluster: its first inventories, its CPU time, and calls to the API server.

A real etcd, API server, scheduler and kwok nodes of 8 GPUs on this machine, with pods that request two each; the real
`flyball controller` command reads them, on the embedded broker. First: from its start until each inventory is on
the topic, with all that the process does before. Then a quiet time, in which nothing but kwok's heartbeats changes: CPU
time of the controller's process and its calls, as the audit log has them, by the minute.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.common.controlplane import add_option, programs
from bench.common.report import machine
from tests.actuators.loop import PARTITIONS, read_keyed
from tests.brokers.embedded import EmbeddedBroker
from tests.kubernetes.cluster import pod
from tests.kubernetes.controlplane import CONTROLLER, CONTROLLER_USER, ControlPlane

from flyball_contracts.topics import INVENTORY

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra" / "kubernetes"
NODES, QUICK_NODES = 1000, 50
PODS_PER_NODE = 2
QUIET_S, QUICK_QUIET_S = 120.0, 10.0
DEADLINE_S = 300.0
console = Console()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; the exit status is 1 when a node or a pod was not seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 nodes, and a short quiet time")
    add_option(parser)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    options = parser.parse_args(arguments)
    binaries = programs(parser, options.controlplane)
    nodes, quiet_s = (QUICK_NODES, QUICK_QUIET_S) if options.quick else (NODES, QUIET_S)
    with tempfile.TemporaryDirectory(prefix="flyball-controller-") as name, EmbeddedBroker(PARTITIONS) as broker:
        folder = Path(name)
        (folder / "plane").mkdir()
        with ControlPlane(binaries, folder / "plane") as plane:
            _fill(plane, nodes)
            figures = _measured(plane, broker.bootstrap, folder, nodes, quiet_s)
    table = Table("what", "number", title=f"{nodes} nodes, {8 * nodes} GPUs, {PODS_PER_NODE * nodes} pods")
    for what, number in figures.items():
        table.add_row(what.replace("_", " "), f"{number:,.6g}")
    console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps({**machine(), "nodes": nodes, **figures}, indent=1))
    return 0 if figures["inventories"] == nodes and figures["pods_seen"] == PODS_PER_NODE * nodes else 1


def _fill(plane: ControlPlane, nodes: int) -> None:
    """Nodes, and pods that are bound as they are made."""
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flyball"}})
    rights = yaml.safe_load_all((INFRA / "controller.yaml").read_text())
    plane.apply(*(one for one in rights if "Role" in one["kind"]))
    plane.apply(*yaml.safe_load_all((INFRA / "crds.yaml").read_text()))
    for node in plane.nodes(nodes):
        for i in range(PODS_PER_NODE):
            made = pod({"app": "chat"}, 2, "100ms")
            made["spec"]["nodeName"] = node
            body = {"apiVersion": "v1", "kind": "Pod", **made}
            body["metadata"] = {**made["metadata"], "name": f"{node}-{i}"}
            status, answer = plane.request("POST", "/api/v1/namespaces/default/pods", body)
            if status != 201:
                raise RuntimeError(f"pod {node}-{i}: {answer}")
    deadline_s = time.monotonic() + DEADLINE_S
    while any(one["status"].get("phase") != "Running" for one in plane.get("/api/v1/pods")["items"]):
        if time.monotonic() > deadline_s:
            raise RuntimeError("not all pods run")
        time.sleep(2.0)


def _measured(plane: ControlPlane, bootstrap: str, folder: Path, nodes: int, quiet_s: float) -> dict[str, float]:
    config = folder / "flyball.yaml"
    settings: dict[str, Any] = {"kubeconfig": str(plane.kubeconfig(CONTROLLER)), "cell": "eu-1"}
    config.write_text(yaml.safe_dump({"kafka": {"bootstrap": bootstrap}, "controller": settings}))
    started_s = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "flyball_cli", "controller", "--config", str(config)], env=dict(os.environ)
    ) as command:
        try:
            while len({key for key, _, _ in read_keyed(bootstrap, INVENTORY.name)}) < nodes:
                if time.monotonic() - started_s > DEADLINE_S or command.poll() is not None:
                    break
                time.sleep(0.2)
            first_s = time.monotonic() - started_s
            time.sleep(5.0)
            process = psutil.Process(command.pid)
            first_cpu_s, calls = sum(process.cpu_times()[:2]), len(plane.calls(CONTROLLER_USER))
            time.sleep(quiet_s)
            quiet_cpu_s = sum(process.cpu_times()[:2]) - first_cpu_s
            made = plane.calls(CONTROLLER_USER)
            memory = process.memory_info().rss
        finally:
            command.terminate()
    newest = {key: json.loads(value or b"{}") for key, value, _ in read_keyed(bootstrap, INVENTORY.name)}
    verbs = Counter(call["verb"] for call in made[:calls])
    return {
        "inventories": len(newest),
        "pods_seen": sum(len(one.get("allocations", ())) for one in newest.values()),
        "first_inventories_s": first_s,
        "first_cpu_s": first_cpu_s,
        "first_list_calls": verbs["list"],
        "first_watch_calls": verbs["watch"],
        "quiet_cpu_s_per_minute": quiet_cpu_s * 60 / quiet_s,
        "quiet_calls_per_minute": (len(made) - calls) * 60 / quiet_s,
        "memory_mib": memory / (1 << 20),
    }


if __name__ == "__main__":
    sys.exit(main())
