"""Controllers that are started once, and nodes in zones."""

from collections.abc import Iterator

import pytest
from tests.kubernetes.controlplane import ControlPlane
from tests.kubernetes.delegation.kueue import ZONE, Kueue, kueue_folder
from tests.kubernetes.delegation.serving import Serving, serving_folder
from tests.kubernetes.delegation.training import Training


@pytest.fixture(scope="session")
def serving(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """LeaderWorkerSet's controller, and the custom resource of KServe."""
    folder = serving_folder()
    if folder is None:
        pytest.skip("no LeaderWorkerSet; run infra/serving/fetch")
    made = Serving(control_plane, folder, tmp_path_factory.mktemp("serving"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def kueue(
    control_plane: ControlPlane, training: Training | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kueue]:
    """Kueue itself, which asks when it starts which kinds of job there are."""
    folder = kueue_folder()
    if folder is None:
        pytest.skip("no Kueue; run infra/kueue/fetch")
    made = Kueue(control_plane, folder, tmp_path_factory.mktemp("kueue"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def zones(control_plane: ControlPlane) -> Iterator[None]:
    """Nodes are in zones a and b by turns."""
    _zoned(control_plane, "a", "b")
    yield
    _zoned(control_plane, None)


def _zoned(plane: ControlPlane, *zones: str | None) -> None:
    for i, node in enumerate(plane.get("/api/v1/nodes")["items"]):
        body = {"metadata": {"labels": {ZONE: zones[i % len(zones)]}}}
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        plane.request("PATCH", path, body, content_type="application/merge-patch+json")
