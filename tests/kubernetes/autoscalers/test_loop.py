"""The whole loop on a cluster: requests come in a burst, pods come, and the queue goes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.loop import PARTITIONS, config_for, outcomes
from tests.brokers.embedded import EmbeddedBroker
from tests.kubernetes.autoscalers.burst import BEFORE, CELL, serve_a_burst
from tests.kubernetes.cluster import Cluster

from flyball_contracts.config import PlatformConfig

pytestmark = pytest.mark.integration


@pytest.mark.timeout(900)
def test_a_burst_is_served(cluster: Cluster, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    cluster.deploy("chat", BEFORE, workload="chat", cold_start="4s")
    cluster.ready(cluster.deployments("chat"), BEFORE)
    platform = PlatformConfig(
        cells=(CELL,), driver="kubernetes", kubeconfig=str(cluster.plane.kubeconfig()), namespaces=(cluster.namespace,)
    )
    config = config_for(
        bootstrap, "loop", mode="live", ledger=str(tmp_path / "ledger"), platforms=(platform,), allow=("chat",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    serve_a_burst(cluster, tmp_path, config)
    found = outcomes(bootstrap)
    last = {outcome.decision: outcome for outcome in found if outcome.final}
    done = [outcome for outcome in last.values() if outcome.status == "done"]
    assert done, found
    assert {outcome.driver for outcome in found} == {"kubernetes"}
    assert all(outcome.observed is not None and outcome.observed.ready == outcome.observed.replicas for outcome in done)
    assert cluster.plane.get(cluster.deployments("chat"))["spec"]["replicas"] > BEFORE
    writes = [
        call["requestReceivedTimestamp"]
        for call in cluster.plane.calls()
        if call["verb"] == "update" and call["objectRef"]["namespace"] == cluster.namespace
    ]
    assert len(done) <= len(writes) <= len(last)  # each at most once
