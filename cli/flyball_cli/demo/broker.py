"""The demo's embedded broker, and a forwarder to it on a port that the user names."""

import socket
import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from flyball_contracts.errors import TransportError
from flyball_contracts.topics import TOPICS

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 64 * 1024


class Addresses(NamedTuple):
    """Addresses of the broker for the demo's services, and for users."""

    bootstrap: str
    public: str


@contextmanager
def embedded(port: int | None) -> Generator[Addresses]:
    """Run the embedded broker with all topics.

    The broker chooses its port itself. With ``port``, clients can also start there: they receive the broker's own
    address and continue with it. Raises :class:`TransportError` when the port cannot be used.
    """
    from flyball_streams.broker import EmbeddedBroker

    with EmbeddedBroker({name: topic.partitions for name, topic in TOPICS.items()}) as broker:
        if port is None:
            yield Addresses(broker.bootstrap, broker.bootstrap)
            return
        try:
            opened = _Forwarder((LOOPBACK, port), broker.bootstrap)
        except OSError as error:
            raise TransportError(f"--broker-port {port}: {error.strerror}; name another port") from error
        with opened as forwarder:
            threading.Thread(target=forwarder.serve_forever, name="forwarder", daemon=True).start()
            try:
                yield Addresses(broker.bootstrap, f"{LOOPBACK}:{forwarder.server_address[1]}")
            finally:
                forwarder.shutdown()


class _Forwarder(socketserver.ThreadingTCPServer):
    """Forwards the bytes of each connection to the broker, and back."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = host, int(port)
        super().__init__(address, _Connection)


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server, near = self.server, self.request
        assert isinstance(server, _Forwarder)
        with suppress(OSError), socket.create_connection(server.target) as far:
            back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
            back.start()
            _pass_on(near, far)
            back.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            sink.sendall(data)
    for end in (source, sink):  # when one side has closed, close the other
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
