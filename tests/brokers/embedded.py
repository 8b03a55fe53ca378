"""The embedded broker with faults that are injected into librdkafka's mock cluster."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from flyball_contracts.errors import TransportError
from flyball_streams.broker import embedded

ALL_BROKERS = -1
_POINTER, _INT, _STRING = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_INT16, _INT32, _INT64, _SIZE = ctypes.c_int16, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
# name: (result, arguments). Without them ctypes would cut 64-bit pointers to 32 bits.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "topic_set_error": (None, [_POINTER, _STRING, _INT]),
    "partition_delete_records": (_INT, [_POINTER, _STRING, _INT32, _INT64]),
    "push_request_errors_array": (None, [_POINTER, _INT16, _SIZE, ctypes.POINTER(_INT)]),
    "broker_set_down": (_INT, [_POINTER, _INT32]),
    "broker_set_up": (_INT, [_POINTER, _INT32]),
    "broker_set_rtt": (_INT, [_POINTER, _INT32, _INT]),
}


class EmbeddedBroker(embedded.EmbeddedBroker):
    """An embedded broker that loses its link, its records and its temper as a test requests."""

    def __init__(self, topics: Mapping[str, int], *, brokers: int = 1, join_delay_ms: int = 100) -> None:
        super().__init__(topics, brokers=brokers, join_delay_ms=join_delay_ms)
        if self._cluster is not None:
            self._cluster.declare({f"rd_kafka_mock_{name}": signature for name, signature in _SIGNATURES.items()})

    def set_rtt(self, rtt_ms: int) -> None:
        """Delay every answer by a round-trip time in ms."""
        self._fault(f"set a round-trip time of {rtt_ms} ms", "broker_set_rtt", ALL_BROKERS, rtt_ms)

    def set_down(self) -> None:
        """Cut every connection and refuse new ones; the data stay."""
        self._fault("take the brokers down", "broker_set_down", ALL_BROKERS)

    def set_up(self) -> None:
        """Accept connections again, at the same address."""
        self._fault("bring the brokers up", "broker_set_up", ALL_BROKERS)

    def push_request_errors(self, api_key: int, errors: Sequence[int]) -> None:
        """Answer the next requests of a kind (`ApiKey`) with these errors (`Fault`), in order."""
        values = (_INT * len(errors))(*errors)
        self._fault("push errors", "push_request_errors_array", api_key, len(errors), values)

    def set_topic_error(self, topic: str, error: int) -> None:
        """Answer metadata requests for a topic with an error; `Fault.NONE` ends it."""
        self._fault("set a topic's error", "topic_set_error", topic.encode(), error)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Drop a partition's records below an offset, as retention does."""
        action = f"delete records of {topic!r}[{partition}] below {before_offset}"
        self._fault(action, "partition_delete_records", topic.encode(), partition, before_offset)

    def _fault(self, action: str, name: str, *arguments: Any) -> None:
        if self._cluster is None:
            raise TransportError("faults need librdkafka's shared object; install the confluent-kafka wheel from PyPI")
        self._open()
        self._cluster.order(action, name, *arguments)
