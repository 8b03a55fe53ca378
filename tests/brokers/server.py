"""A server program on loopback: start, wait, stop, and show its log when it fails."""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flyball_contracts.errors import TransportError

LOOPBACK = "127.0.0.1"
# Below the range that the kernel gives to outgoing connections: nobody else gets such a port by
# chance while a server restarts, and no reconnecting client can end up connected to itself.
_PORTS = range(20_000, 32_000)
_TAIL_LINES = 25
_POLL_S = 0.05


def free_ports(count: int) -> list[int]:
    """Random loopback TCP ports, all different, on which nothing listens now."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise TransportError(f"no {count} free ports on {LOOPBACK} in {_PORTS.start}-{_PORTS.stop}")


def accepts(port: int) -> bool:
    """Whether something on loopback accepts connections at this port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


class Server:
    """One run of a program whose output goes to the end of a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # an interrupt at the terminal is ours to pass on
            )

    def wait_until(self, ready: Callable[[], bool], deadline_s: float) -> None:
        """Poll `ready`; `TransportError` with the log's end when the program ends or is late."""
        give_up = time.monotonic() + deadline_s
        while not ready():
            status = self._process.poll()
            if status is not None:
                raise TransportError(f"{self._name} ended with status {status}.{self._tail()}")
            if time.monotonic() > give_up:
                raise TransportError(f"{self._name} was not ready after {deadline_s:.0f} s.{self._tail()}")
            time.sleep(_POLL_S)

    def stop(self, grace_s: float = 20.0) -> None:
        """Stop it (SIGTERM) and kill it (SIGKILL) if it still runs after `grace_s`."""
        self._process.terminate()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return "".join(f"\n  | {line}" for line in (f"last lines of {self._log.name}:", *lines))
