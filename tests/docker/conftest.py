"""The same tests on a real engine and on the double, each behind a gate that can cut callers off."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.conftest import NO_SKIP_VARIABLE, ROOT
from tests.docker.double import Double
from tests.docker.engine import DockerEngine, missing
from tests.docker.machine import Machine
from tests.docker.proxy import forward

VARIABLE = "FLYBALL_DOCKER"
# Where CI could not get an engine it says so; everywhere else these tests skip with the reason.
ABSENT = os.environ.get(NO_SKIP_VARIABLE) == "1" and not os.environ.get(VARIABLE)
collect_ignore = ["test_images.py"] if ABSENT else []
REAL = pytest.param("engine", marks=pytest.mark.integration)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", ["double"] if ABSENT else ["double", REAL], scope="session")


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """The programs that `infra/dockertest/fetch` gets, running."""
    folder = Path(os.environ.get(VARIABLE) or ROOT / ".cache" / "docker")
    reason = missing(folder)
    if reason is not None:
        pytest.skip(reason)
    with TemporaryDirectory(prefix="docker") as place, DockerEngine(folder, Path(place)) as running:
        yield running


@pytest.fixture
def machine(kind: str, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine with an engine, empty of containers."""
    with TemporaryDirectory(prefix="gate") as place:  # a path of a socket has few letters
        if kind == "double":
            made = Machine(Double(), Path(place))
        else:
            made = Machine(forward(str(request.getfixturevalue("engine").socket)), Path(place))
        yield made
        made.clear()
