"""A burst of requests that two pods cannot serve, and the whole loop that answers it."""

import time
from pathlib import Path

import msgspec
from tests.actuators.loop import running
from tests.brokers.server import LOOPBACK, free_ports
from tests.faults.testbed import READY_S, Service, wait_until
from tests.kubernetes.autoscalers.serving import Serving
from tests.kubernetes.cluster import Cluster

from flyball_contracts.config import Burst, Config, FleetConfig, GridZone, NodePool, Service as FleetService

CELL = "kubernetes"
BEFORE, MOST = 2, 8
BURST_FROM_S, BURST = 15.0, 5.0
LOOP_S = 300.0


def fleet(replicas: int = BEFORE, most: int = MOST, nodes: int = 4, burst: float = BURST) -> FleetConfig:
    """One service with a burst that its replicas cannot serve; a pod that is ready serves at once."""
    zone = GridZone(name="DE")
    chat = FleetService(
        name="chat", pools=("gpu",), replicas=replicas, min_replicas=replicas, max_replicas=most, cold_start_s=0.0,
        stop_s=0.0, base_load=0.5, wave_share=0.0, noise_share=0.0, random_bursts_per_hour=0.0,
        bursts=(Burst(from_s=BURST_FROM_S, rise_s=3.0, hold_s=1e6, factor=burst),),
    )  # fmt: skip
    pool = NodePool(name="gpu", sku="h100", nodes=nodes, zone="DE", price_usd_per_hour=31.2)
    return FleetConfig(
        cell=CELL, zones=(zone,), pools=(pool,), services=(chat,), trainings=(), notebooks=(), batches=(), failing=(),
        straggling=(),
    )  # fmt: skip


def serve_a_burst(cluster: Cluster, folder: Path, config: Config) -> list[int]:
    """Run a worker, an actuator and the fleet until nothing waits any more; the numbers of ready pods, in order.

    The Deployment ``chat`` has its :data:`BEFORE` pods.
    """
    (port,) = free_ports(1)
    url, listen = f"http://{LOOPBACK}:{port}", f"{LOOPBACK}:{port}"
    common, described, health = folder / "flyball.yaml", folder / "fleet.yaml", folder / "health"
    common.write_bytes(msgspec.yaml.encode(config))
    described.write_bytes(msgspec.yaml.encode(fleet()))
    worker = Service("worker", folder, ["worker", "--config", str(common), "--health-file", str(health)])
    sender = Service("fleet", folder, ["fleet", str(described), "--listen", listen, "--config", str(common)])
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
    assert serving.ready[0] == BEFORE
    assert max(serving.ready) > BEFORE  # each of them came after a cold start on a node of the cluster
    return serving.ready
