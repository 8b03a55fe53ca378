"""The whole loop on a cluster: requests come in a burst, pods come, and the queue goes."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.actuators.loop import PARTITIONS, config_for, outcomes, running
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import LOOPBACK, free_ports
from tests.faults.testbed import READY_S, Service, wait_until
from tests.kubernetes.autoscalers.serving import Serving
from tests.kubernetes.cluster import Cluster

from flyball_contracts.config import Burst, FleetConfig, GridZone, NodePool, PlatformConfig, Service as FleetService

pytestmark = pytest.mark.integration
CELL = "kubernetes"
BEFORE, MOST = 2, 8
BURST_FROM_S, BURST = 15.0, 5.0
LOOP_S = 150.0


def fleet() -> FleetConfig:
    """One service with a burst that its two pods cannot serve; a pod that is ready serves at once."""
    zone = GridZone(name="DE")
    chat = FleetService(
        name="chat", pools=("gpu",), replicas=BEFORE, min_replicas=BEFORE, max_replicas=MOST, cold_start_s=0.0,
        stop_s=0.0, base_load=0.5, wave_share=0.0, noise_share=0.0, random_bursts_per_hour=0.0,
        bursts=(Burst(from_s=BURST_FROM_S, rise_s=3.0, hold_s=1e6, factor=BURST),),
    )  # fmt: skip
    pool = NodePool(name="gpu", sku="h100", nodes=4, zone="DE", price_usd_per_hour=31.2)
    return FleetConfig(
        cell=CELL, zones=(zone,), pools=(pool,), services=(chat,), trainings=(), notebooks=(), batches=(), failing=(),
        straggling=(),
    )  # fmt: skip


@pytest.mark.timeout(400)
def test_a_burst_is_served(cluster: Cluster, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    cluster.deploy("chat", BEFORE, workload="chat", cold_start="4s")
    cluster.ready(cluster.deployments("chat"), BEFORE)
    (port,) = free_ports(1)
    url, listen = f"http://{LOOPBACK}:{port}", f"{LOOPBACK}:{port}"
    platform = PlatformConfig(
        cells=(CELL,), driver="kubernetes", kubeconfig=str(cluster.plane.kubeconfig()), namespaces=(cluster.namespace,)
    )
    config = config_for(
        bootstrap, "loop", mode="live", ledger=str(tmp_path / "ledger"), platforms=(platform,), allow=("chat",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    common, described, health = tmp_path / "flyball.yaml", tmp_path / "fleet.yaml", tmp_path / "health"
    common.write_bytes(msgspec.yaml.encode(config))
    described.write_bytes(msgspec.yaml.encode(fleet()))
    worker = Service("worker", tmp_path, ["worker", "--config", str(common), "--health-file", str(health)])
    sender = Service("fleet", tmp_path, ["fleet", str(described), "--listen", listen, "--config", str(common)])
    try:
        worker.start()
        wait_until(health.exists, "the worker has its partitions", READY_S)
        with running(config, clock=time.time_ns), Serving(cluster, "chat", url, CELL) as serving:
            sender.start()
            waited: list[float] = []

            def served() -> bool:
                assert serving.error is None, serving.error
                if not serving.ready:
                    return False
                account = serving.account()
                waited.append(account.queued or 0.0)
                return max(waited) > 50.0 and waited[-1] < 1.0 and account.ready > BEFORE

            wait_until(served, "the queue is gone", LOOP_S)
    finally:
        sender.terminate()
        worker.terminate()
    found = outcomes(bootstrap)
    last = {outcome.decision: outcome for outcome in found if outcome.final}
    done = [outcome for outcome in last.values() if outcome.status == "done"]
    assert done, found
    assert {outcome.driver for outcome in found} == {"kubernetes"}
    assert all(outcome.observed is not None and outcome.observed.ready == outcome.observed.replicas for outcome in done)
    assert serving.ready[0] == BEFORE
    assert max(serving.ready) > BEFORE  # each of them came after a cold start on a node of the cluster
    assert cluster.plane.get(cluster.deployments("chat"))["spec"]["replicas"] > BEFORE
    writes = [
        call["requestReceivedTimestamp"]
        for call in cluster.plane.calls()
        if call["verb"] == "update" and call["objectRef"]["namespace"] == cluster.namespace
    ]
    assert len(done) <= len(writes) <= len(last)  # each at most once
