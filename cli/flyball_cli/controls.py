"""Orders of operators: stops and approvals, on their topic."""

import getpass
import socket

from flyball_cli.compacted import read_compacted, write_records
from flyball_contracts.config import KafkaConfig
from flyball_contracts.records import Approval, Stop
from flyball_contracts.topics import CONTROLS

CLIENT = "flyball-cli-controls"


def standing(kafka: KafkaConfig) -> list[Stop | Approval]:
    """Current orders, the newest of each key, including expired approvals.

    Raises :class:`TransportError` when the broker does not respond or has no such topic.
    """
    found: dict[str, Stop | Approval] = {}
    for key, record in read_compacted(kafka, CONTROLS, CLIENT):
        found.pop(key, None)
        if isinstance(record, Approval) or (isinstance(record, Stop) and not record.removed):
            found[key] = record
    return list(found.values())


def order(kafka: KafkaConfig, record: Stop | Approval) -> None:
    """Publish an order; :class:`TransportError` if the broker does not acknowledge it."""
    write_records(kafka, [record], CLIENT, "controls")


def who() -> str:
    """Default name of the operator: user and host."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a user id without a name
        return socket.gethostname()
