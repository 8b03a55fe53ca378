"""From `kubectl cordon` to a decision that is not made: agent, broker and worker, each a process."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.actuators.loop import PARTITIONS, read_all, read_keyed
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import LOOPBACK, free_ports
from tests.conftest import ROOT
from tests.faults.testbed import READY_S, Service, wait_until
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import AGENT
from tests.nvml_stub.stub import STATE_VARIABLE, NvmlStub, compile_stub

from flyball_contracts.codec import decode_message, decode_record
from flyball_contracts.config import Burst, FleetConfig, GridZone, NodePool, Service as FleetService
from flyball_contracts.records import Inventory, ProposalTick, Scale
from flyball_contracts.topics import DECISIONS, INVENTORY, PROPOSALS

pytestmark = pytest.mark.integration
RIGHTS = [d for d in yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "agent.yaml").read_text()) if d]
MERGE = "application/merge-patch+json"
CELL, NODE = "kubernetes", "gpu-3"
FULL = 8
# What every pod has: a token of its account and the certificate of the API server, at these places.
POD = ("unshare", "--mount", "--map-root-user", "sh", "-c", """
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io &&
cp -r "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"
""")  # fmt: skip
HELD_BACK = 20
"""Ticks for which the worker wants more replicas and gets none."""
WANTED_S, DECIDED_S = 180.0, 120.0


def fleet() -> FleetConfig:
    """A node that its service fills, and a burst for which eight replicas are too few."""
    chat = FleetService(
        name="chat", pools=("gpu",), replicas=FULL, min_replicas=FULL, max_replicas=2 * FULL, cold_start_s=0.0,
        stop_s=0.0, base_load=0.5, wave_share=0.0, noise_share=0.0, random_bursts_per_hour=0.0,
        bursts=(Burst(from_s=15.0, rise_s=3.0, hold_s=1e6, factor=3.0),),
    )  # fmt: skip
    pool = NodePool(name="gpu", sku="h100", nodes=1, zone="DE", price_usd_per_hour=31.2)
    return FleetConfig(
        cell=CELL, zones=(GridZone(name="DE"),), pools=(pool,), services=(chat,), trainings=(), notebooks=(),
        batches=(), failing=(), straggling=(),
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_nothing_is_decided_onto_a_node_that_a_person_has_cordoned(
    cluster: Cluster,
    embedded_broker: Callable[..., EmbeddedBroker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = compile_stub(tmp_path)
    assert library is not None, "a C compiler is needed"
    stub = NvmlStub(tmp_path / "gpus", FULL)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv(STATE_VARIABLE, str(stub.path))
    plane, bootstrap = cluster.plane, embedded_broker(PARTITIONS).bootstrap
    plane.apply(*(d for d in RIGHTS if d["kind"].startswith("ClusterRole")))
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(AGENT)
    shutil.copy(plane.authority, account / "ca.crt")
    _, host, port_of_api = plane.url.replace("//", "").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port_of_api)
    settings = {
        "kafka": {"bootstrap": bootstrap},
        "agent": {
            "node": NODE, "cell": CELL, "zone": "DE", "provider": "none", "price_usd_per_hour": 31.2,
            "disabled": ["kmsg"], "state_dir": str(tmp_path / "agent"),
            "workloads": {"discover": ["kubernetes"]},
        },
    }  # fmt: skip
    (port,) = free_ports(1)
    common, described, health = tmp_path / "flyball.yaml", tmp_path / "fleet.yaml", tmp_path / "health"
    common.write_text(yaml.safe_dump(settings))
    described.write_bytes(msgspec.yaml.encode(fleet()))
    worker = Service("worker", tmp_path, ["worker", "--config", str(common), "--health-file", str(health)])
    agent = Service("agent", tmp_path, ["agent", "--config", str(common)], inside=[*POD, str(account)])
    listen = f"{LOOPBACK}:{port}"
    sender = Service("fleet", tmp_path, ["fleet", str(described), "--listen", listen, "--config", str(common)])

    def cordon(closed: bool) -> None:
        body: dict[str, Any] = {"spec": {"unschedulable": True if closed else None}}
        path = f"/api/v1/nodes/{NODE}?fieldManager=kubectl-cordon"
        status, answer = plane.request("PATCH", path, body, content_type=MERGE)
        assert status == 200, answer

    def reported() -> Inventory | None:
        """What the agent has said last of its node."""
        found = [(value, headers) for key, value, headers in read_keyed(bootstrap, INVENTORY.name) if key == NODE]
        if not found or found[-1][0] is None:
            return None
        record = decode_record(INVENTORY.name, found[-1][0], [*found[-1][1]])
        return record if isinstance(record, Inventory) else None

    def shows(schedulable: bool) -> Callable[[], bool]:
        def is_so() -> bool:
            now = reported()
            return now is not None and len(now.devices) == FULL and now.schedulable is schedulable

        return is_so

    def wants() -> int:
        """Ticks in which more replicas are proposed than one node holds."""
        records = [
            decode_message(PROPOSALS.name, value, headers) for value, headers in read_all(bootstrap, PROPOSALS.name)
        ]
        ticks = [one for one in records if isinstance(one, ProposalTick)]
        more = {one.id for tick in ticks for one in tick.proposals if (one.replicas or 0) > FULL}
        return sum(bool(more & {*tick.repeated, *(one.id for one in tick.proposals)}) for tick in ticks)

    def decided() -> list[Scale]:
        records = [
            decode_message(DECISIONS.name, value, headers) for value, headers in read_all(bootstrap, DECISIONS.name)
        ]
        return [one for one in records if isinstance(one, Scale)]

    cordon(True)
    try:
        worker.start()
        agent.start()
        wait_until(health.exists, "the worker has its partitions", READY_S)
        wait_until(shows(schedulable=False), f"the agent reports a closed node: {agent.tail()}", READY_S)
        sender.start()
        wait_until(lambda: wants() >= HELD_BACK, f"more replicas are wanted: {worker.tail()}", WANTED_S)
        assert decided() == []
        cordon(False)
        wait_until(shows(schedulable=True), f"the agent reports an open node: {agent.tail()}", READY_S)
        wait_until(lambda: bool(decided()), f"replicas for the node that is open: {worker.tail()}", DECIDED_S)
        (first, *_) = decided()
        assert (first.workload, first.replicas_before) == ("chat", FULL)
        assert FULL < first.replicas <= 2 * FULL
    finally:
        for service in (sender, agent, worker):
            service.terminate()
        cordon(False)
