"""A real one-node Apache Kafka from a folder of jars, without a container.

For tests, benchmarks and CI, in a checkout: the configuration is in `infra/kafka`, and
`infra/kafka/fetch` gets the jars.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.brokers.secured import Secured
from tests.brokers.server import LOOPBACK, Server, accepts, free_ports

from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import bounds, consumer_settings

JARS_VARIABLE = "FLYBALL_KAFKA_JARS"
DEFAULT_JARS = Path(".cache/kafka/lib")
_INFRA = Path(__file__).resolve().parents[2] / "infra" / "kafka"
_HEAP = "-Xmx1g"
_SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Quick compilation halves the CPU time of a start, which suits a broker that runs for minutes."""
_READY_S = 90.0
_REQUEST_S = 30.0


def jars_folder() -> Path:
    """Folder of the jars: `FLYBALL_KAFKA_JARS`, else `.cache/kafka/lib` here."""
    return Path(os.environ.get(JARS_VARIABLE) or DEFAULT_JARS).absolute()


def missing(jars: Path | None = None) -> str | None:
    """Why a real Kafka cannot start here, with the remedy, or None when it can."""
    folder = jars or jars_folder()
    if shutil.which("java") is None:
        return "no java on the PATH; run infra/kafka/fetch, or install a Java 17 runtime"
    if not any(folder.glob("kafka_2.13-*.jar")):
        return f"no Kafka jars in {folder}; run infra/kafka/fetch, or set {JARS_VARIABLE}"
    if not _INFRA.is_dir():
        return f"no {_INFRA}; a real Kafka starts only from a checkout of Flyball"
    return None


def _classes(jars: Path) -> tuple[str, ...]:
    """The option for the loaded classes that `infra/kafka/fetch` has left beside the jars; the runtime skips others."""
    kept = jars.parent / "classes.jsa"
    return (f"-XX:SharedArchiveFile={kept}",) if kept.is_file() else ()


class RealKafka:
    """A broker that runs until `close`, or to the end of its `with` block.

    It listens on random ports of loopback and keeps its data in a temporary folder. `topics` maps names to partition
    counts. `secured` adds a listener with logins and access lists, which grants no right by default. `properties` are
    those of `infra/kafka/server.properties.in`, unless others with the same places are named. What is measured is
    `as_in_production`: with the compiler and the collector of the Java runtime. `TransportError` says what is missing,
    or quotes the broker's log.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        jars: Path | None = None,
        secured: Secured | None = None,
        properties: str | None = None,
        as_in_production: bool = False,
    ):
        reason = missing(jars)
        if reason is not None:
            raise TransportError(f"cannot start Apache Kafka: {reason}")
        self._jars = jars or jars_folder()
        self._options = (_HEAP,) if as_in_production else (_HEAP, *_SHORT_LIFE, *_classes(self._jars))
        self._server: Server | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="flyball-kafka-"))
        self._secured = secured
        self._properties = properties or (_INFRA / "server.properties.in").read_text()
        self._port, self._controller_port, self._secured_port = free_ports(3)
        try:
            self._configure()
            self.set_up()
            self.create_topics(topics or {})
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap(self) -> str:
        """`host:port` for `bootstrap.servers`."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def secured_bootstrap(self) -> str:
        """`host:port` of the listener with TLS and SASL."""
        return f"localhost:{self._secured_port}"

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics, name to number of partitions; `TransportError` when one is refused."""
        if not topics:
            return
        admin: Any = self._admin()  # must outlive the futures; its own types are incomplete
        created: dict[str, Future[None]] = admin.create_topics(
            [NewTopic(name, count, 1) for name, count in topics.items()]
        )
        for name, done in created.items():
            try:
                done.result(_REQUEST_S)
            except KafkaException as error:
                raise TransportError(f"Kafka cannot create topic {name!r}: {error}") from error
        consumer = Consumer(consumer_settings(self.bootstrap, group="flyball-topics", client_id="flyball-topics"))
        try:  # a topic is made before anybody leads it
            bounds(consumer, ((name, p) for name, count in topics.items() for p in range(count)), _REQUEST_S)
        except KafkaException as error:
            raise TransportError(f"Kafka does not lead its new topics: {error.args[0].str()}") from error
        finally:
            consumer.close()

    def set_down(self) -> None:
        """Kill the broker as a crash would; acknowledged data stay."""
        if self._server is not None:
            self._server.kill()
            self._server = None

    def set_up(self) -> None:
        """Start the broker at the same address and on the same data, and wait for it."""
        if self._server is None:
            self._server = Server(
                "Apache Kafka",
                self._java("kafka.Kafka", str(self._folder / "server.properties")),
                self._folder / "broker.log",
            )
            self._server.wait_until(self._ready, _READY_S)

    def wipe(self) -> None:
        """Lose all data, as with a disk: another cluster starts at the same address, without topics."""
        self.set_down()
        for data in self._folder.iterdir():
            if data.is_dir():
                shutil.rmtree(data)
        self._configure()
        self.set_up()

    def pause(self) -> None:
        """Suspend the broker process until `resume`, as on a suspended machine."""
        if self._server is not None:
            self._server.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the broker process."""
        if self._server is not None:
            self._server.send(signal.SIGCONT)

    def close(self) -> None:
        """End the broker and delete its data; a second call does nothing."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _configure(self) -> None:
        text = self._properties
        for name, value in {
            "CLIENT_PORT": str(self._port),
            "CONTROLLER_PORT": str(self._controller_port),
            "FOLDER": str(self._folder),
        }.items():
            text = text.replace(f"@{name}@", value)
        if self._secured is not None:
            text += self._secured.properties(self._port, self._controller_port, self._secured_port)
        properties = self._folder / "server.properties"
        properties.write_text(text)
        # Kafka writes a cluster id as the URL-safe base64 of a UUID, without padding.
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ["format", f"--cluster-id={cluster}", "-c", str(properties)]  # it may begin with a dash
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise TransportError(f"Kafka cannot format its storage:\n{done.stdout}{done.stderr}")

    def _java(self, main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={_INFRA / 'log4j2.properties'}"
        return ["java", *self._options, logging, "-cp", f"{self._jars}/*", main, *arguments]

    def _ready(self) -> bool:
        if not accepts(self._port):
            return False
        try:
            return bool(self._admin().list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
