"""librdkafka's mock cluster by ctypes: the C functions that we use, one method each.

The functions are exported by the shared object inside the `confluent-kafka` wheel, but their
header promises no ABI. So this module declares what it expects, refuses to guess, and
`tests/streams/test_broker.py` notices when a new wheel differs.
"""

import ctypes
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka

from flyball_contracts.errors import TransportError

_PRODUCER = 0  # rd_kafka_type_t
_CONF_OK = 0  # rd_kafka_conf_res_t
_LOG_ERROR = b"3"  # syslog level: hides the warning about `bootstrap.servers`, which is not ours
_ERROR_BYTES = 512
_FIRST_BROKER = 1
_APART_S = 0.001  # if two orders follow faster, the mock may start the second one only a second later

_POINTER, _INT, _STRING = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_INT32, _SIZE = ctypes.c_int32, ctypes.c_size_t

# name: (result, arguments). Without them ctypes would cut 64-bit pointers to 32 bits.
Signatures = Mapping[str, tuple[Any, list[Any]]]
_SIGNATURES: Signatures = {
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
        _declare(library, _SIGNATURES)
    except (OSError, AttributeError) as error:
        raise LibraryMissing(f"{found[0].name} cannot be used: {error}") from error
    return library


def _declare(library: ctypes.CDLL, signatures: Signatures) -> None:
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


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
        self.order("delay joins", "group_initial_rebalance_delay_ms", join_delay_ms)
        # Without a controller an admin call waits for one until it times out.
        self.order("choose a controller", "set_controller_id", _FIRST_BROKER)
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
        action = f"create topic {name!r} with {partitions} partitions"
        self.order(action, "topic_create", name.encode(), partitions, self._brokers)

    def declare(self, signatures: Signatures) -> None:
        """Declare more functions, by their full names."""
        _declare(self._library, signatures)

    def order(self, action: str, name: str, *arguments: Any) -> None:
        """Run an operation in the mock's own thread, and wait for it; `TransportError` names `action` if it fails."""
        time.sleep(_APART_S)
        result: int | None = getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)
        if result:
            reason: bytes = self._library.rd_kafka_err2str(result)
            raise TransportError(f"the embedded broker cannot {action}: {reason.decode()}")

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
