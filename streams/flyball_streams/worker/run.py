"""Start a worker process: tables, warm models, Faust, watchdog."""

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import faust
from confluent_kafka.admin import AdminClient

from flyball_contracts.config import Config
from flyball_contracts.errors import TransportError
from flyball_contracts.topics import EVENTS, TELEMETRY, TOPICS
from flyball_streams.worker.app import make_app
from flyball_streams.worker.host import LaneHost
from flyball_streams.worker.warmup import warm_up
from flyball_streams.worker.watchdog import Watchdog

log = logging.getLogger(__name__)
EMBEDDED_SESSION_S = 3.0
SESSION_S = 10.0


def topic_partitions(bootstrap: str, client: dict[str, str]) -> dict[str, int]:
    """Partition count of each of our topics on the broker.

    Raises :class:`TransportError` when the broker does not answer, a topic is missing, or the node topics are not
    partitioned alike.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **client})
    try:
        known = admin.list_topics(timeout=10.0).topics
    except Exception as error:
        raise TransportError(
            f"no Kafka broker answers at {bootstrap}: start one, or set kafka.bootstrap (--bootstrap)"
        ) from error
    counts = {name: len(known[name].partitions) for name in TOPICS if name in known}
    missing = sorted(set(TOPICS) - set(counts))
    if missing:
        raise TransportError(
            f"missing topics on {bootstrap}: {', '.join(missing)}; create them with `flyball topics --create`"
        )
    if counts[TELEMETRY.name] != counts[EVENTS.name]:
        raise TransportError(
            f"{TELEMETRY.name} has {counts[TELEMETRY.name]} partitions and {EVENTS.name} {counts[EVENTS.name]}: "
            "a node's frames and events must meet, so give both the same number"
        )
    return counts


def run_worker(
    config: Config,
    *,
    embedded: bool = False,
    health_file: Path | None = None,
    ready: Callable[[], None] | None = None,
) -> None:
    """Run a worker until SIGTERM or SIGINT; must be called in the main thread.

    ``embedded`` applies what Faust needs on the embedded broker. Raises :class:`TransportError` when the broker or a
    topic is missing at the start.
    """
    if embedded:
        from flyball_streams.broker import faust_on_mock

        faust_on_mock.apply()
    client_id = f"flyball-worker-{socket.gethostname()}-{os.getpid()}"
    partitions = topic_partitions(config.kafka.bootstrap, config.kafka.client)
    host = LaneHost(config, partitions, client_id)
    host.start()
    warm_up(config.worker, host.directory, partitions[TELEMETRY.name])
    session_s = EMBEDDED_SESSION_S if embedded else SESSION_S
    app = make_app(config, host, partitions, session_s=session_s)

    def lag() -> int:
        consumer = app.consumer
        waiting = 0
        for tp in consumer.assignment():
            done = host.offset(tp.topic, tp.partition)
            waiting += max(0, (consumer.highwater(tp) or 0) - done) if done is not None else 0
        return waiting

    watchdog = Watchdog(lambda: host.progress, lag, config.worker.watchdog_s, health_file)
    watchdog.start()
    if ready is not None:
        ready()
    worker = faust.Worker(app, loglevel="WARNING", redirect_stdouts=False, quiet=True)
    try:
        worker.execute_from_commandline()
    finally:
        watchdog.stop()
        host.close()
