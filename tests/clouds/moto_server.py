"""moto in a process of its own: what stands behind the strict proxy."""

import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.brokers.server import LOOPBACK, Server, free_ports

READY_S = 60.0


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/moto-api/", timeout=1.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def moto_server(folder: Path) -> Generator[str]:
    """The address of a moto that holds nothing yet."""
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    server = Server("moto", [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)], folder / "moto.log")
    try:
        server.wait_until(lambda: _answers(url), READY_S)
        yield url
    finally:
        server.stop()
