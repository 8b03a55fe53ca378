"""Which processes sent the datagrams of one read, and which of them have ended since.

The kernel names the sender by its number, which another process may get once it has ended. Since Linux 6.5 it also
gives a descriptor of the process itself (``SO_PASSPIDFD``), which distinguishes the two. Python 3.11 does not know the
constants.
"""

import contextlib
import os
import signal
import socket
import struct

_SO_PASSPIDFD, _SCM_PIDFD = 76, 4
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_DESCRIPTOR = struct.Struct("i")
_MOST = 128  # descriptors; later senders are known by number alone


def name_senders(made: socket.socket) -> None:
    """Let the kernel name the sender of each datagram of a Unix socket."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with contextlib.suppress(OSError):  # before Linux 6.5
        made.setsockopt(socket.SOL_SOCKET, _SO_PASSPIDFD, 1)


class Senders:
    """Senders since the last :meth:`forget`; holds one descriptor for each."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._ended: set[int] = set()

    def receive(self, source: socket.socket, most_bytes: int) -> tuple[bytes, int]:
        """A datagram and its sender's process; 0 outside the PID namespace, and for a second process of a number."""
        room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_DESCRIPTOR.size)
        datagram, ancillary, _, _ = source.recvmsg(most_bytes, room)
        pid, descriptor = 0, None
        for level, kind, data in ancillary:
            if level != socket.SOL_SOCKET:
                continue
            if kind == socket.SCM_CREDENTIALS:
                pid = int(_CREDENTIALS.unpack_from(data)[0])
            elif kind == _SCM_PIDFD:
                (descriptor,) = _DESCRIPTOR.unpack_from(data)
            elif kind == socket.SCM_RIGHTS:  # whatever a sender attached
                for (other,) in _DESCRIPTOR.iter_unpack(data[: len(data) // _DESCRIPTOR.size * _DESCRIPTOR.size]):
                    os.close(other)
        return datagram, self._known(pid, descriptor)

    def ended(self) -> set[int]:
        """Numbers whose sender has ended, so that another process may have them; empty before Linux 6.5."""
        return self._ended | {pid for pid, descriptor in self._held.items() if _is_gone(descriptor)}

    def forget(self) -> None:
        """Close all descriptors."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held, self._ended = {}, set()

    def _known(self, pid: int, descriptor: int | None) -> int:
        if not pid and descriptor is not None and descriptor >= 0:
            os.close(descriptor)
        if descriptor is None or not pid:
            return pid
        if descriptor < 0:  # it had ended before the datagram was read
            self._ended.add(pid)
            return pid
        held = self._held.get(pid)
        if held is None and pid not in self._ended and len(self._held) < _MOST:
            self._held[pid] = descriptor
            return pid
        os.close(descriptor)
        return 0 if pid in self._ended or (held is not None and _is_gone(held)) else pid


def _is_gone(descriptor: int) -> bool:
    try:
        signal.pidfd_send_signal(descriptor, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is not ours to signal, so it is there
        return False
    return False
