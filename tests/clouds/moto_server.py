"""moto in a process of its own: what stands behind the strict proxy."""

import json
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.brokers.server import LOOPBACK, Server, free_ports

READY_S = 60.0
IMAGE = {
    "ami_id": "ami-079cff16c17ea032e",
    "architecture": "x86_64",
    "description": "Amazon Linux 2",
    "hypervisor": "xen",
    "image_type": "machine",
    "name": "amzn2",
    "owner_id": "137112412989",
    "public": True,
    "root_device_name": "/dev/xvda",
    "root_device_type": "ebs",
    "state": "available",
    "virtualization_type": "hvm",
}
"""All that machines are launched from; moto's own list has more than a thousand images."""


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
    images = folder / "images.json"
    images.write_text(json.dumps([IMAGE]))
    server = Server(
        "moto",
        [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)],
        folder / "moto.log",
        environment={"MOTO_AMIS_PATH": str(images)},
    )
    try:
        server.wait_until(lambda: _answers(url), READY_S)
        yield url
    finally:
        server.stop()
