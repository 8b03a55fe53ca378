"""The datagram socket for lines of training scripts."""

import contextlib
import logging
import os
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

from flyball_collectors.workload.training.lines import Line, parse_line
from flyball_collectors.workload.training.senders import Senders, name_senders
from flyball_contracts.errors import ConfigError

_LOG = logging.getLogger(__name__)
_DATAGRAM_BYTES = 1 << 16
_TICK_BYTES = 1 << 18
_QUEUE_BYTES = 1 << 20


class LineSocket:
    """The socket at ``udp://host:port`` or ``unix:///path``; ``refused`` counts invalid lines.

    ``senders`` are those of the last :meth:`take`.

    A second one may be made for the same address during a reload of the configuration: the newer UDP socket gets
    everything; a newer Unix socket takes over the path with its first :meth:`take`. Anyone on this host may write to a
    Unix socket whose folder permits it. Raises :class:`ConfigError` when the address cannot be used.
    """

    def __init__(self, address: str) -> None:
        self.refused = 0
        self.senders = Senders()
        parts = urlsplit(address)
        self._path = Path(parts.path) if parts.scheme == "unix" else None
        self._own: int | None = None
        try:
            if self._path is not None:
                self._socket, self._beside = _bind_beside(self._path)
            else:
                self._socket = _bind(parts.hostname or "", parts.port or 0)
        except (OSError, ValueError, OverflowError) as error:
            raise ConfigError(f"agent.workloads.listen: {address}: {error}; name one that can be had") from error

    @property
    def address(self) -> str:
        """Where it listens, with the port that the system chose for port 0."""
        if self._path is not None:
            return f"unix://{self._path}"
        host, port = self._socket.getsockname()[:2]
        return f"udp://[{host}]:{port}" if ":" in host else f"udp://{host}:{port}"

    def take(self) -> list[Line]:
        """Lines since the last call, in at most 256 KiB; the rest waits in the system's queue."""
        self.senders.forget()
        lines: list[Line] = []
        taken = 0
        while taken < _TICK_BYTES:
            try:
                datagram, pid = self._receive()
            except OSError:  # nothing more, or an error of the network: neither is ours
                break
            taken += len(datagram) + 1
            for text in datagram.decode("utf-8", "replace").splitlines():
                if text.strip() and not text.startswith("#"):
                    line = parse_line(text)
                    if line is None:
                        self._refuse(text)
                    else:
                        lines.append(line._replace(pid=pid))
        if self._path is not None:
            with contextlib.suppress(OSError):  # its folder is gone, or not ours any more: tried again at the next tick
                self._claim(self._path)
        return lines

    def close(self) -> None:
        """Close the socket and remove its file, unless that is another's."""
        self.senders.forget()
        self._socket.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                if self._own is None:
                    self._beside.unlink()
                elif self._path.lstat().st_ino == self._own:
                    self._path.unlink()

    def _receive(self) -> tuple[bytes, int]:
        """A datagram and its sender's process, 0 over UDP."""
        if self._path is None:
            return self._socket.recv(_DATAGRAM_BYTES), 0
        return self.senders.receive(self._socket, _DATAGRAM_BYTES)

    def _claim(self, path: Path) -> None:
        """Bind the path, at first and again when it is lost: ``flyball agent --once`` beside this agent takes it."""
        if self._own is not None:
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_ino == self._own:
                    return
            fresh, beside = _bind_beside(path)
            self._socket.close()
            self._socket, self._beside, self._own = fresh, beside, None
        own = self._beside.lstat().st_ino
        self._beside.replace(path)
        self._own = own

    def _refuse(self, text: str) -> None:
        self.refused += 1
        if self.refused == 1:
            _LOG.warning(
                "%s: not a line as in training,workload=w step=1: %.80r; others are counted", self.address, text
            )


def _bind(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return _ready(made)


def _bind_beside(path: Path) -> tuple[socket.socket, Path]:
    """A socket with a name beside ``path``, to be moved there: an existing listener continues until then."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError("there is something else")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    beside = path.with_name(f"{path.name}.{os.getpid()}-{id(made):x}")
    try:
        name_senders(made)
        made.bind(os.fspath(beside))
        beside.chmod(0o666)
    except BaseException:
        made.close()
        raise
    return _ready(made), beside


def _ready(made: socket.socket) -> socket.socket:
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)
    return made
