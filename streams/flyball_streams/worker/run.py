"""Start a worker process: tables, warm models, Faust, watchdog."""

import logging
import os
import socket
import tempfile
from pathlib import Path

import faust

from flyball_contracts.config import Config
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import RepeatFilter, list_topics, open_admin
from flyball_contracts.security.rights import roles
from flyball_contracts.topics import EVENTS, TELEMETRY
from flyball_streams.engine.workload.forecast.history import History
from flyball_streams.worker.app import Worker
from flyball_streams.worker.faust_private import TESTED, run_on_embedded_broker, untested_versions
from flyball_streams.worker.host import LaneHost
from flyball_streams.worker.process import calm_collector, compute_in_this_thread
from flyball_streams.worker.warmup import warm_up
from flyball_streams.worker.watchdog import Watchdog

log = logging.getLogger(__name__)
EMBEDDED_SESSION_S = 3.0
SESSION_S = 10.0
WATCHDOG_S = 60.0
"""A worker that has lag and makes no progress for this long ends itself; a step takes a second at most."""


def topic_partitions(config: Config) -> dict[str, int]:
    """Partition count of each topic that a worker reads or writes.

    Raises :class:`TransportError` when the broker does not respond, a topic is missing, or the node topics have
    different partition counts.
    """
    bootstrap, role = config.kafka.bootstrap, roles(config)["worker"]
    admin = open_admin({"bootstrap.servers": bootstrap, **config.kafka.client}, log, "start", log_errors=False)
    try:
        known = list_topics(admin, 10.0).topics
    except Exception as error:
        raise TransportError(
            f"no Kafka broker answers at {bootstrap}: start one, or set kafka.bootstrap (--bootstrap)"
        ) from error
    needed = {topic.name for topic in (*role.reads, *role.writes)}
    counts = {name: len(known[name].partitions) for name in sorted(needed) if name in known}
    missing = sorted(needed - set(counts))
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


def run_worker(config: Config, *, embedded: bool = False, health_file: Path | None = None) -> None:
    """Run a worker until SIGTERM or SIGINT; must be called in the main thread.

    ``embedded`` applies what Faust needs on the embedded broker. Raises :class:`TransportError` when the broker or a
    topic is missing at the start, :class:`RecordingError` when ``forecast.history`` cannot be used,
    :class:`ConfigError` for security settings that Faust's client does not support.
    """
    if embedded:
        run_on_embedded_broker()
    for name, installed in untested_versions().items():
        log.warning("%s %s is installed, but the worker was tested with %s", name, installed, TESTED[name])
    storms = RepeatFilter("aiokafka", "faust", "mode")
    for handler in logging.getLogger().handlers:
        handler.addFilter(storms)
    compute_in_this_thread()
    client_id = f"flyball-worker-{socket.gethostname()}-{os.getpid()}"
    trained: dict[str, History] = {}
    if config.worker.forecast.history:
        from flyball_streams.recording.history import histories  # reads Parquet, which a worker has no other use for

        trained = histories(config.worker)
    partitions = topic_partitions(config)
    host = LaneHost(config, partitions, client_id, trained)
    with tempfile.TemporaryDirectory(prefix="flyball-worker-") as scratch:
        try:  # a signal may come while models are compiled; the thread that reads tables must end before the process
            host.start()
            warm_up(config.worker, host.directory, partitions)
            calm_collector()
            session_s = EMBEDDED_SESSION_S if embedded else SESSION_S
            worker = Worker(config, host, partitions, Path(scratch), session_s=session_s)
            watchdog = Watchdog(worker, WATCHDOG_S, health_file)
            watchdog.start()
            runner = faust.Worker(worker.app, override_logging=False, redirect_stdouts=False, quiet=True)
            runner.spinner = None  # it prints escape codes, to files too
            try:
                runner.execute_from_commandline()
            finally:
                watchdog.stop()
        finally:
            host.close()
