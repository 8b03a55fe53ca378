"""Faults everywhere, judged by the API server's audit log: no decision has two effects, or a forbidden one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.actuators.loop import PARTITIONS
from tests.brokers.kafka import RealKafka
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.delegation.training import Training
from tests.kubernetes.faults.trial import trial

pytestmark = pytest.mark.integration


@pytest.fixture
def bootstrap(kafka_jars: Path) -> Iterator[str]:
    with RealKafka(PARTITIONS, jars=kafka_jars) as broker:
        yield broker.bootstrap


@pytest.mark.timeout(1200)
def test_each_decision_has_one_effect_at_most(
    cluster: Cluster, bootstrap: str, tmp_path: Path, training: Training | None
) -> None:
    if training is not None:
        training.watch(cluster)
    verdict = trial(cluster, bootstrap, tmp_path, 200, seed=1, with_job_sets=training is not None)
    print(verdict)
    for log in (*tmp_path.glob("*.log"), *cluster.plane.logs) if verdict.broken else ():
        print(log.name, log.read_text()[-5000:], sep="\n")
    assert not verdict.broken
    # How many there are depends on the machine; that there are some makes the oracles mean something.
    assert verdict.last["done"] > 5
    assert verdict.effects["number"] > 20
    assert verdict.effects["job"] > 2
    assert verdict.effects["job set"] > 2 or training is None
    assert verdict.effects["eviction"] > 2
    assert verdict.faults.total() > 3
