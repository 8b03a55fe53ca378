"""Kafka clients that log their failures clearly, and not too often."""

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer

from flyball_contracts.kafka.log import ClientLog


def open_consumer(settings: Mapping[str, Any], log: logging.Logger, who: str, *, log_errors: bool = True) -> Consumer:
    """Return a consumer with these settings that logs its failures to ``log`` under the name ``who``.

    It connects and reconnects by itself. Pass ``log_errors=False`` where the caller reports failures itself.
    """
    return Consumer(_logged(settings, log, who, log_errors=log_errors))


def open_producer(settings: Mapping[str, Any], log: logging.Logger, who: str, *, log_errors: bool = True) -> Producer:
    """Return a producer, like :func:`open_consumer`."""
    return Producer(_logged(settings, log, who, log_errors=log_errors))


def open_admin(settings: Mapping[str, Any], log: logging.Logger, who: str, *, log_errors: bool = True) -> Any:
    """Return an ``AdminClient``, like :func:`open_consumer`; its own types leave out those of its answers."""
    from confluent_kafka.admin import AdminClient  # a megabyte that agents do without

    return AdminClient(_logged(settings, log, who, log_errors=log_errors))


def _logged(settings: Mapping[str, Any], log: logging.Logger, who: str, *, log_errors: bool) -> dict[str, Any]:
    client_log = ClientLog(log, who, str(settings["bootstrap.servers"]))
    return {**settings, **({"error_cb": client_log.on_error} if log_errors else {}), "logger": client_log}
