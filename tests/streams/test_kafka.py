"""The real broker's beginnings and ends: what is missing is named, nothing is left behind."""

import socket
import sys
import tempfile
from pathlib import Path

import pytest
from tests.brokers.kafka import RealKafka
from tests.brokers.server import LOOPBACK, Server, accepts, free_ports

from flyball_contracts.errors import TransportError

FORMATS_THEN_FAILS = """#!/bin/sh
case "$*" in *StorageTool*) exit 0 ;; esac
echo "ERROR the disk is full"
exit 3
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `java` that formats and then fails; gives the path of the program."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(FORMATS_THEN_FAILS)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return program


def test_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError, match=r"no java on the PATH; run infra/kafka/fetch"):
        RealKafka()


@pytest.mark.usefixtures("fake_java")
def test_missing_jars_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_KAFKA_JARS", str(tmp_path))
    with pytest.raises(TransportError, match=rf"no Kafka jars in {tmp_path}; run infra/kafka/fetch"):
        RealKafka()


@pytest.mark.usefixtures("fake_java")
def test_a_broker_that_ends_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka_2.13-0.jar").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TransportError, match=r"ended with status 3\.\n(.*\n)*.*the disk is full"):
        RealKafka(jars=tmp_path)
    assert not list(tmp_path.glob("flyball-kafka-*"))


def test_a_storage_that_cannot_be_formatted_is_quoted(
    fake_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kafka_2.13-0.jar").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fake_java.write_text("#!/bin/sh\necho 'no such class' >&2\nexit 1\n")
    with pytest.raises(TransportError, match="cannot format its storage:\nno such class"):
        RealKafka(jars=tmp_path)
    assert not list(tmp_path.glob("flyball-kafka-*"))


def test_a_late_server_is_quoted_and_a_deaf_one_killed(tmp_path: Path) -> None:
    log = tmp_path / "deaf.log"
    server = Server("Deaf", [sys.executable, "-c", DEAF], log)
    try:
        server.wait_until(lambda: "deaf" in log.read_text(), 30.0)
        with pytest.raises(TransportError, match=r"Deaf was not ready after 0 s\.\n(.*\n)*.*deaf"):
            server.wait_until(lambda: False, 0.0)
    finally:
        server.stop(grace_s=0.1)
    with pytest.raises(TransportError, match="ended with status -9"):
        server.wait_until(lambda: False, 30.0)


def test_free_ports_are_free_and_differ() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3
    for port in ports:
        assert not accepts(port)
        with socket.create_server((LOOPBACK, port)):
            assert accepts(port)


@pytest.mark.integration
def test_real_kafka_leaves_nothing_behind(
    kafka_jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with RealKafka({"t": 2}, jars=kafka_jars) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        assert accepts(port)
        broker.close()
    assert not accepts(port)
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")
