"""What an agent sees of its node on a real cluster: whether it is drained, and by whom."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.slurm.cluster import SlurmCluster

from flyball_collectors.parameters import SlurmParameters, WorkloadsParameters
from flyball_collectors.workload import WorkloadCollector

pytestmark = pytest.mark.integration
NODE = "gpu1"


def test_an_agent_sees_who_has_drained_its_node(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    settings = SlurmParameters(period_s=0.1, node_period_s=0.1)
    section = WorkloadsParameters(discover=("slurm",), slurm=settings)
    collector = WorkloadCollector(section, NODE, root=tmp_path, environ={})

    def shows(schedulable: bool, cordon: str) -> Callable[[], bool]:
        return lambda: (collector.parts().schedulable, collector.parts().cordon) == (schedulable, cordon)

    def update(*changes: str) -> None:
        cluster.run("scontrol", "update", f"NodeName={NODE}", *changes)

    try:
        cluster.until(lambda: collector.problems()["slurm"] == "", "the agent may ask")
        cluster.until(shows(True, ""), "an open node")
        update("State=DRAIN", "Reason=a fan is loud")
        cluster.until(shows(False, "other"), "a node that a person has drained")
        update("State=RESUME")
        cluster.until(shows(True, ""), "the node is open again")
        update("State=DRAIN", "Reason=flyball m1")
        cluster.until(shows(False, "flyball"), "a node that Flyball has drained")
        update("State=RESUME")
        cluster.until(shows(True, ""), "the node is open again")
    finally:
        collector.close()
