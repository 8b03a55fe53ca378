"""From `kubectl cordon` to a decision that is not made: agent, broker and worker, each a process."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.actuators.loop import PARTITIONS, read_all, read_keyed
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import LOOPBACK, free_ports
from tests.faults.testbed import READY_S, Service, wait_until
from tests.kubernetes.agents.test_agent import RIGHTS
from tests.kubernetes.autoscalers.burst import CELL, fleet
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import AGENT
from tests.kubernetes.test_controller import change_node
from tests.nvml_stub.stub import STATE_VARIABLE, NvmlStub, compile_stub

from flyball_contracts.codec import decode_message, decode_record
from flyball_contracts.records import Inventory, ProposalTick, Scale
from flyball_contracts.topics import DECISIONS, INVENTORY, PROPOSALS

pytestmark = pytest.mark.integration
NODE, FULL = "gpu-3", 8
"""The node of the agent, and how many GPUs it has: as many as the fleet's own node, which the service fills."""
# What every pod has: a token of its account and the certificate of the API server, at these places.
POD = ("unshare", "--mount", "--map-root-user", "sh", "-c", """
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io &&
cp -r "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"
""")  # fmt: skip
HELD_BACK = 20
"""Ticks for which the worker wants more replicas and gets none."""
WANTED_S, DECIDED_S = 180.0, 120.0


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
    described.write_bytes(msgspec.yaml.encode(fleet(FULL, 2 * FULL, nodes=1, burst=3.0)))
    worker = Service("worker", tmp_path, ["worker", "--config", str(common), "--health-file", str(health)])
    agent = Service("agent", tmp_path, ["agent", "--config", str(common)], inside=[*POD, str(account)])
    listen = f"{LOOPBACK}:{port}"
    sender = Service("fleet", tmp_path, ["fleet", str(described), "--listen", listen, "--config", str(common)])

    def reported() -> list[Inventory]:
        """What the agent has said of its node, in order."""
        found = [(value, headers) for key, value, headers in read_keyed(bootstrap, INVENTORY.name) if key == NODE]
        records = [decode_record(INVENTORY.name, value, [*headers]) for value, headers in found if value is not None]
        return [one for one in records if isinstance(one, Inventory)]

    def shows(schedulable: bool) -> Callable[[], bool]:
        return lambda: [(len(one.devices), one.schedulable) for one in reported()][-1:] == [(FULL, schedulable)]

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

    change_node(cluster, NODE, unschedulable=True)
    try:
        worker.start()
        agent.start()
        wait_until(health.exists, "the worker has its partitions", READY_S)
        wait_until(shows(schedulable=False), "the agent reports a closed node", READY_S)
        sender.start()
        wait_until(lambda: wants() >= HELD_BACK, "more replicas are wanted", WANTED_S)
        assert decided() == []
        change_node(cluster, NODE, unschedulable=None)
        wait_until(shows(schedulable=True), "the agent reports an open node", READY_S)
        wait_until(lambda: bool(decided()), "replicas for the node that is open", DECIDED_S)
        (first, *_) = decided()
        assert (first.workload, first.replicas_before) == ("chat", FULL)
        assert FULL < first.replicas <= 2 * FULL
        assert first.time_ns > min(one.time_ns for one in reported() if one.schedulable)
    finally:
        for service in (sender, agent, worker):
            service.terminate()
        change_node(cluster, NODE, unschedulable=None)
