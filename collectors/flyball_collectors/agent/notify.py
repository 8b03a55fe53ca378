"""Reports the agent's state to systemd, by the datagrams of ``sd_notify``."""

import os
import socket
from collections.abc import Mapping

_BEATS = 3  # in each watchdog period


class Notifier:
    """Does nothing without ``NOTIFY_SOCKET``; a report that cannot be sent is ignored.

    ``beat_s`` is the watchdog's longest time between two calls of :meth:`beat`, ``None`` without a watchdog.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._ready = False
        self.beat_s: float | None = None
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        if self._address and watchdog_us.isdecimal() and int(watchdog_us) and ours:
            self.beat_s = int(watchdog_us) / 1e6 / _BEATS

    def beat(self) -> None:
        """Report that the loop runs, and once that the agent has started."""
        if not self._ready:
            self._ready = self._send("READY=1")
        if self.beat_s is not None:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the agent stops."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> bool:
        """Send one report; return false if it could not be sent and should be repeated."""
        if not self._address:
            return True
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto(text.encode(), self._address)
        except OSError:  # as for want of a descriptor, which must not end the agent
            return False
        return True
