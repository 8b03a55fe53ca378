"""librdkafka's mock cluster by ctypes: the C functions that we use, one method each.

The functions are exported by the shared object inside the `confluent-kafka` wheel, but their
header promises no ABI. So this module says what it expects, refuses to guess, and
`tests/streams/test_broker.py` notices when a new wheel differs.
"""

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka

from flyball_contracts.errors import TransportError

ALL_BROKERS = -1
_PRODUCER = 0  # rd_kafka_type_t
_CONF_OK = 0  # rd_kafka_conf_res_t
_LOG_ERROR = b"3"  # syslog level: hides the warning about `bootstrap.servers`, which is not ours
_ERROR_BYTES = 512
_FIRST_BROKER = 1
_APART_S = 0.001  # of two orders in quicker succession the mock may sleep through the second for a second

_POINTER, _INT, _STRING = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_INT16, _INT32, _INT64, _SIZE = ctypes.c_int16, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t

# name: (result, arguments). Without them ctypes would cut 64-bit pointers to 32 bits.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_conf_new": (_POINTER, []),
    "rd_kafka_conf_set": (_INT, [_POINTER, _STRING, _STRING, _STRING, _SIZE]),
    "rd_kafka_conf_destroy": (None, [_POINTER]),
    "rd_kafka_new": (_POINTER, [_INT, _POINTER, _STRING, _SIZE]),
    "rd_kafka_destroy": (None, [_POINTER]),
    "rd_kafka_poll": (_INT, [_POINTER, _INT]),
    "rd_kafka_err2str": (_STRING, [_INT]),
    "rd_kafka_mock_cluster_new": (_POINTER, [_POINTER, _INT]),
    "rd_kafka_mock_cluster_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_bootstraps": (_STRING, [_POINTER]),
    "rd_kafka_mock_set_controller_id": (None, [_POINTER, _INT32]),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [_POINTER, _INT32]),
    "rd_kafka_mock_topic_create": (_INT, [_POINTER, _STRING, _INT, _INT]),
    "rd_kafka_mock_topic_set_error": (None, [_POINTER, _STRING, _INT]),
    "rd_kafka_mock_partition_delete_records": (_INT, [_POINTER, _STRING, _INT32, _INT64]),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        [_POINTER, _INT16, _SIZE, ctypes.POINTER(_INT)],
    ),
    "rd_kafka_mock_broker_set_down": (_INT, [_POINTER, _INT32]),
    "rd_kafka_mock_broker_set_up": (_INT, [_POINTER, _INT32]),
    "rd_kafka_mock_broker_set_rtt": (_INT, [_POINTER, _INT32, _INT]),
}


class LibraryMissing(TransportError):
    """No shared object of librdkafka with the mock cluster's functions was found."""


def load() -> ctypes.CDLL:
    """Open the client wheel's own librdkafka; `LibraryMissing` when it cannot serve."""
    package = Path(confluent_kafka.__file__).parent
    found = sorted(package.parent.glob("confluent_kafka.libs/librdkafka-*.so*"))  # Linux wheel
    found += sorted(package.glob(".dylibs/librdkafka*.dylib"))  # macOS wheel
    if not found:
        raise LibraryMissing(f"no librdkafka beside {package}")
    try:
        library = ctypes.CDLL(str(found[0]))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LibraryMissing(f"{found[0].name} cannot be used: {error}") from error
    return library


class MockCluster:
    """A mock cluster and its librdkafka client; not thread-safe in `close`."""

    def __init__(self, brokers: int, join_delay_ms: int) -> None:
        self._library = load()
        self._brokers = brokers
        self._client = self._new_client()
        self._cluster: int = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            self._library.rd_kafka_destroy(self._client)
            raise TransportError(f"librdkafka cannot start a mock cluster of {brokers} brokers")
        self._order("group_initial_rebalance_delay_ms", join_delay_ms)
        # Without a controller an admin call waits for one until it times out.
        self._order("set_controller_id", _FIRST_BROKER)
        address: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.bootstrap = address.decode()

    def serve(self, timeout_ms: int) -> None:
        """Serve the client's own events for at most `timeout_ms`."""
        self._library.rd_kafka_poll(self._client, timeout_ms)

    def close(self) -> None:
        """Free both; no other method may be running or be called afterwards."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, replicated to every broker."""
        result = self._order("topic_create", name.encode(), partitions, self._brokers)
        self._check(result, f"create topic {name!r} with {partitions} partitions")

    def set_topic_error(self, name: str, error: int) -> None:
        """Answer `error` in every later metadata request for this topic; 0 ends it."""
        self._order("topic_set_error", name.encode(), error)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Drop a partition's records below an offset, as retention does."""
        result = self._order("partition_delete_records", topic.encode(), partition, before_offset)
        self._check(result, f"delete records of {topic!r}[{partition}] below {before_offset}")

    def push_request_errors(self, api_key: int, errors: Sequence[int]) -> None:
        """Answer the next `len(errors)` requests of this kind with these errors, in order."""
        values = (_INT * len(errors))(*errors)
        self._order("push_request_errors_array", api_key, len(errors), values)

    def set_down(self) -> None:
        """Cut all connections and refuse new ones."""
        result = self._order("broker_set_down", ALL_BROKERS)
        self._check(result, "take the brokers down")

    def set_up(self) -> None:
        """Accept connections again."""
        result = self._order("broker_set_up", ALL_BROKERS)
        self._check(result, "bring the brokers up")

    def set_rtt(self, rtt_ms: int) -> None:
        """Delay every answer by a round-trip time in ms."""
        result = self._order("broker_set_rtt", ALL_BROKERS, rtt_ms)
        self._check(result, f"set a round-trip time of {rtt_ms} ms")

    def _order(self, name: str, *arguments: Any) -> Any:
        """Run an operation in the mock's own thread, and wait for its result."""
        time.sleep(_APART_S)
        return getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)

    def _new_client(self) -> int:
        text = ctypes.create_string_buffer(_ERROR_BYTES)
        conf: int = self._library.rd_kafka_conf_new()
        outcome: int = self._library.rd_kafka_conf_set(conf, b"log_level", _LOG_ERROR, text, _ERROR_BYTES)
        # The client owns the configuration only once it exists.
        client: int | None = None
        if outcome == _CONF_OK:
            client = self._library.rd_kafka_new(_PRODUCER, conf, text, _ERROR_BYTES)
        if not client:
            self._library.rd_kafka_conf_destroy(conf)
            raise TransportError(f"librdkafka cannot start: {text.value.decode()}")
        return client

    def _check(self, result: int, action: str) -> None:
        if result:
            reason: bytes = self._library.rd_kafka_err2str(result)
            raise TransportError(f"the embedded broker cannot {action}: {reason.decode()}")
