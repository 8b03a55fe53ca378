"""One Slurm cluster for all tests here, emptied after each."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import NO_SKIP_VARIABLE, ROOT
from tests.slurm.cluster import SlurmCluster, missing

from flyball_actuators.platforms.slurm import effects

VARIABLE = "FLYBALL_SLURM"
# Where CI could not get Slurm it says so; everywhere else these tests skip with the reason.
ABSENT = os.environ.get(NO_SKIP_VARIABLE) == "1" and not os.environ.get(VARIABLE)
REAL = ("test_agent.py", "test_check.py", "test_more.py", "test_pause.py", "test_platform.py", "test_service.py")
collect_ignore = [*REAL] if ABSENT else []


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """The programs that `infra/slurmtest/fetch` gets, running."""
    with SlurmCluster(_programs(), tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def pausable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster with a partition whose jobs may be suspended."""
    monkeypatch.setattr(effects, "SETTLE_S", 2)
    with SlurmCluster(_programs(), tmp_path, pausable=True) as cluster:
        monkeypatch.setenv("PATH", str(cluster.commands), prepend=os.pathsep)
        yield cluster
        cluster.clear()


@pytest.fixture
def cluster(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """The cluster without jobs; the platform finds its commands on the PATH, and waits less before a new start."""
    monkeypatch.setattr(effects, "SETTLE_S", 2)
    monkeypatch.setenv("PATH", str(slurm.commands), prepend=os.pathsep)
    yield slurm
    slurm.clear()


def _programs() -> Path:
    folder = Path(os.environ.get(VARIABLE) or ROOT / ".cache" / "slurm")
    reason = missing(folder)
    if reason is not None:
        pytest.skip(reason)
    return folder
