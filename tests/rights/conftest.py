"""A real Kafka where users log in over TLS, and have the rights that Flyball prints."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.brokers.kafka import RealKafka
from tests.brokers.secured import Secured
from tests.rights.ground import Ground, certificate, passwords


@pytest.fixture(scope="session")
def ground(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The broker, its topics, and the printed rights of all roles."""
    folder = tmp_path_factory.mktemp("rights")
    keystore = certificate(folder, "localhost")
    with RealKafka(jars=kafka_jars, secured=Secured(keystore, passwords())) as broker:
        ground = Ground(broker, folder)
        ground.grant_all()
        yield ground


@pytest.fixture(scope="session")
def created(ground: Ground) -> None:
    """All topics are there."""
    ground.create()
