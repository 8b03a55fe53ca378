"""Checks at the start that the broker authorizes all operations of a role."""

import logging
import socket
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from threading import Event
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from flyball_contracts.config import Config
from flyball_contracts.errors import ConfigError, TransportError
from flyball_contracts.kafka.clients import open_admin
from flyball_contracts.kafka.metadata import raise_if_stopped
from flyball_contracts.security.rights import Right, roles

_LOG = logging.getLogger(__name__)
ANSWER_S = 10.0
_SLICE_S = 0.1
_DENIED = ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")
_CERTIFICATE = "check ssl.ca.location and the host name in kafka.bootstrap"


def secured(config: Config) -> bool:
    """Return whether clients authenticate, so that the broker can deny them something."""
    return config.kafka.client.get("security.protocol", "plaintext").lower() != "plaintext"


def preflight(config: Config, role: str, *, stop: Event | None = None, patient: bool = False) -> None:
    """Check that this user has every right of a role; without security, only that the broker requires none.

    It queries the operations that the user is authorized for, and changes nothing. The caller reports missing topics.
    Raises :class:`ConfigError` with the first missing right, or with the reason why the broker refuses the login;
    :class:`TransportError` if no broker responds, unless ``patient``.
    """
    if not config.kafka.bootstrap or (patient and not secured(config)):
        return
    needed = list(roles(config)[role].rights())
    topics = sorted({right.name for right in needed if right.resource == "topic"})
    groups = sorted({right.name for right in needed if right.resource == "group"})
    failures: list[KafkaError] = []
    settings = {
        "bootstrap.servers": config.kafka.bootstrap,
        "client.id": "flyball-rights",
        **config.kafka.client,
        "error_cb": failures.append,
    }
    admin = open_admin(settings, _LOG, role, log_errors=False)
    requests: dict[tuple[str, str], Future[Any]] = {}
    described: Mapping[str, Future[Any]] = admin.describe_topics(
        TopicCollection(topics), include_authorized_operations=True, request_timeout=ANSWER_S
    )
    requests |= {("topic", name): future for name, future in described.items()}
    if groups and secured(config):
        described = admin.describe_consumer_groups(groups, include_authorized_operations=True, request_timeout=ANSWER_S)
        requests |= {("group", name): future for name, future in described.items()}
    _wait(admin, list(requests.values()), failures, config, stop)
    if not secured(config):
        return
    allowed: dict[tuple[str, str], Any] = {}
    for place, future in requests.items():
        try:
            if not future.done():
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # pyright: ignore[reportPrivateUsage]
            allowed[place] = future.result(0).authorized_operations
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.name() in _DENIED:
                allowed[place] = ()
            elif reason.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"):
                if patient:
                    return
                raise TransportError(
                    f"no Kafka broker answers at {config.kafka.bootstrap}: start one, or set kafka.bootstrap "
                    "(--bootstrap)"
                ) from error
    for right in needed:
        held = allowed.get((right.resource, right.name))
        if held is not None and right.operation.upper() not in {operation.name for operation in held}:
            raise ConfigError(_denied(config, role, right))


def _wait(
    admin: Any, requests: list[Future[Any]], failures: list[KafkaError], config: Config, stop: Event | None
) -> None:
    """Wait for responses; end at once if the broker refuses the login, as librdkafka would retry."""
    give_up_s = time.monotonic() + ANSWER_S
    while time.monotonic() < give_up_s and wait(requests, _SLICE_S).not_done:
        raise_if_stopped(stop)
        admin.poll(0)
        for error in failures:
            where = f"Kafka at {config.kafka.bootstrap}"
            if not secured(config):
                if error.name() != "_ALL_BROKERS_DOWN":
                    continue
                if _listens(config.kafka.bootstrap):
                    raise TransportError(
                        f"{where} takes connections and closes them: if it wants TLS or a log-in, "
                        "set security.protocol in kafka.client"
                    )
                return
            if error.name() == "_AUTHENTICATION":
                raise ConfigError(
                    f"{where} refuses {_principal(config)}: {error.str()}; "
                    "check sasl.username, and the file of sasl.password, in kafka.client"
                )
            if error.name() == "_SSL":
                raise ConfigError(f"{where} is not trusted: {error.str()}; {_CERTIFICATE}")


def _listens(bootstrap: str) -> bool:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
    except OSError:
        return False
    return True


def _principal(config: Config) -> str:
    user = config.kafka.client.get("sasl.username")
    return f"User:{user}" if user else "this client's certificate"


def _denied(config: Config, role: str, right: Right) -> str:
    return (
        f"Kafka at {config.kafka.bootstrap} does not allow {_principal(config)} {right.operation} on {right.resource} "
        f"{right.name}; grant what `flyball topics --acls --role {role}` prints"
    )
