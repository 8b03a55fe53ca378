"""Every `flyball` command of docker-compose.yml runs, becomes healthy by its own health check, and stops on SIGTERM.

The commands are taken from the file and run as they stand, each on the embedded broker, and all together on an Apache
Kafka with the settings of the file; only places are put in for places: addresses, folders, ports, and a stub in
InfluxDB's stead.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import RealKafka
from tests.brokers.server import free_ports
from tests.cli.shell import Forked

from flyball_contracts.config import Config, load_config
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.topics import DEMAND, TELEMETRY, TOPICS

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = {
    name: service for name, service in COMPOSE["services"].items() if service.get("command", [""])[0] == "flyball"
}
LONG_RUNNING = [name for name, service in SERVICES.items() if service["restart"] != "no"]
CONFIG = "/etc/flyball/flyball.yaml"
STATE = "/var/lib/flyball"
HEALTH = "/tmp/health"
HEALTHY_S = 120.0
ALL_HEALTHY_S = 400.0
"""All services compile and import at once."""
STOP_S = 15.0


class _Stub(BaseHTTPRequestHandler):
    """Answers as an InfluxDB that takes everything."""

    def do_GET(self) -> None:
        self._answer(200, b'{"status":"pass"}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(204, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def influx() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Stub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Place:
    """Where a service's container is, when it is no container but a process in a folder."""

    def __init__(self, folder: Path, bootstrap: str, influx: str) -> None:
        (self.port,) = free_ports(1)
        self.folder = folder
        self.bootstrap = bootstrap
        self.health = folder / "health"
        (folder / "state").mkdir()
        self._write_config(influx)

    def _write_config(self, influx: str) -> None:
        config = load_config(ROOT / "infra/examples/flyball.compose.yaml", Config)
        replace = msgspec.structs.replace
        config = replace(
            config,
            agent=replace(config.agent, root="/"),
            dashboard=replace(config.dashboard, host="127.0.0.1", port=self.port),
            influx=replace(config.influx, url=influx),
        )
        text = msgspec.yaml.encode(config).decode()
        (self.folder / "flyball.yaml").write_text(text.replace(STATE, str(self.folder / "state")))

    def command(self, words: list[str]) -> list[str]:
        """A command of the compose file, with this place's own paths and ports."""
        words = [self._local(word) for word in words]
        if "--bootstrap" in words:
            words[words.index("--bootstrap") + 1] = self.bootstrap
        program, *arguments = words
        if program == "flyball":
            return [sys.executable, "-m", "flyball_cli", *arguments]
        assert program == "python", f"unknown program {program}"
        return [sys.executable, *arguments]

    def _local(self, word: str) -> str:
        places = {CONFIG: self.folder / "flyball.yaml", STATE: self.folder / "state", HEALTH: self.health}
        for there, here in places.items():
            word = word.replace(there, str(here))
        return word.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")


def _environment(service: dict[str, Any]) -> dict[str, str]:
    """The test's own environment, and the service's, with a token wherever one is asked for."""
    own = {key: re.sub(r"\$\{\w+:\?.*\}", "token", value) for key, value in service.get("environment", {}).items()}
    return {**os.environ, "JAX_PLATFORMS": "cpu", **own}


@contextmanager
def _running(name: str, place: Place) -> Generator[Forked]:
    log = place.folder / "log"
    log.write_bytes(b"")
    python, option, module, *arguments = place.command(SERVICES[name]["command"])
    assert (python, option) == (sys.executable, "-m")
    process = Forked(
        module,
        *arguments,
        output=str(log),
        errors=str(log),
        folder=str(place.folder / "state"),
        env=_environment(SERVICES[name]),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _tail(place: Place) -> str:
    return (place.folder / "log").read_text(errors="replace")[-3000:]


def _wait_until_healthy(name: str, place: Place, process: Forked, within_s: float) -> None:
    kind, *words = SERVICES[name]["healthcheck"]["test"]
    assert kind == "CMD"
    check = place.command(words)
    deadline = time.monotonic() + within_s
    while True:
        assert process.poll() is None, f"{name} ended with {process.returncode}:\n{_tail(place)}"
        answer = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
        if answer.returncode == 0:
            return
        assert time.monotonic() < deadline, f"{name} is not healthy: {answer.stderr[-500:]}\n{_tail(place)}"
        time.sleep(0.5)


@pytest.fixture
def place(tmp_path: Path, influx: str, embedded_broker: Callable[..., EmbeddedBroker]) -> Place:
    broker = embedded_broker({topic.name: topic.partitions for topic in TOPICS.values()})
    return Place(tmp_path, broker.bootstrap, influx)


def test_every_command_is_run_here() -> None:
    assert {"topics", *LONG_RUNNING} == set(SERVICES)
    assert set(LONG_RUNNING) == {"agent", "worker", "actuator", "dashboard", "sink"}


def test_topics_that_exist_are_left_alone(place: Place) -> None:
    command = place.command(SERVICES["topics"]["command"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LONG_RUNNING)
def test_service_becomes_healthy_and_stops(name: str, place: Place) -> None:
    with _running(name, place) as process:
        _wait_until_healthy(name, place, process, HEALTHY_S)
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{name} did not stop within {STOP_S:.0f} s of SIGTERM:\n{_tail(place)}")
        assert code == 0, _tail(place)


@pytest.fixture
def addresses(kafka_jars: Path) -> Iterator[dict[str, str]]:
    """An Apache Kafka without topics and with the settings of the file: its address for each one in the file."""
    (port,) = free_ports(1)
    kafka = COMPOSE["services"]["kafka"]["environment"]
    settings = {key.removeprefix("KAFKA_").lower().replace("_", "."): value for key, value in kafka.items()}
    text = "".join(f"{key}={value}\n" for key, value in settings.items() if key != "heap.opts")
    for there, here in {
        "localhost:29093": "127.0.0.1:@CONTROLLER_PORT@",
        "//kafka:19092": "//127.0.0.1:@CLIENT_PORT@",
        "//:19092": "//127.0.0.1:@CLIENT_PORT@",
        "//127.0.0.1:9092": f"//127.0.0.1:{port}",
        "//:9092": f"//127.0.0.1:{port}",
        "/var/lib/kafka/data": "@FOLDER@/data",
    }.items():
        assert there in text
        text = text.replace(there, here)
    with RealKafka(jars=kafka_jars, properties=text) as broker:
        yield {"kafka:19092": broker.bootstrap, "127.0.0.1:9092": f"127.0.0.1:{port}"}


@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_all_services_start_in_their_order_on_an_empty_kafka_and_work_together(
    addresses: dict[str, str], influx: str, tmp_path: Path
) -> None:
    places = dict[str, Place]()
    for name, service in SERVICES.items():
        (tmp_path / name).mkdir()
        words = service["command"]
        places[name] = Place(tmp_path / name, addresses[words[words.index("--bootstrap") + 1]], influx)
    assert all(service["depends_on"] for service in SERVICES.values()), "topics wait for Kafka, all others for topics"
    done = subprocess.run(
        places["topics"].command(SERVICES["topics"]["command"]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reader = Consumer(consumer_settings(addresses["kafka:19092"], group="compose", client_id="compose"))
    with ExitStack() as stack:
        stack.callback(reader.close)
        found = reader.list_topics(timeout=30.0).topics
        assert {name: len(found[name].partitions) for name in TOPICS} == {
            topic.name: topic.partitions for topic in TOPICS.values()
        }
        processes = {name: stack.enter_context(_running(name, places[name])) for name in LONG_RUNNING}
        for name, process in processes.items():
            _wait_until_healthy(name, places[name], process, ALL_HEALTHY_S)
        deadline = time.monotonic() + ALL_HEALTHY_S
        for topic in (TELEMETRY, DEMAND):  # the agent sends, and the worker has read it
            parts = [TopicPartition(topic.name, part) for part in range(topic.partitions)]
            while not any(reader.get_watermark_offsets(part, timeout=30.0)[1] for part in parts):
                assert time.monotonic() < deadline, f"nothing in {topic.name}:\n{_tail(places['worker'])}"
                time.sleep(0.5)
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(4 * STOP_S) for name, process in processes.items()}
        assert codes == dict.fromkeys(LONG_RUNNING, 0), "\n".join(_tail(places[name]) for name in LONG_RUNNING)


def test_health_check_fails_without_a_running_service(place: Place) -> None:
    for name in LONG_RUNNING:
        check = place.command(SERVICES[name]["healthcheck"]["test"][1:])
        assert subprocess.run(check, capture_output=True, timeout=60, check=False).returncode != 0, name
