"""A Docker engine on a Unix socket, from the programs of infra/dockertest/fetch; see :class:`DockerEngine`."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from tests.brokers.server import Server
from tests.docker.proxy import forward

READY_S = 90.0
IMAGE = "flyball-test:1"


def missing(folder: Path) -> str | None:
    """Why the tests on a real engine cannot run, if so."""
    if not (folder / "usr/sbin/dockerd").is_file():
        return f"no dockerd in {folder}; run infra/dockertest/fetch"
    if os.geteuid() != 0:
        return "a Docker engine needs root"
    return None


class DockerEngine:
    """An engine without networks whose images have a shell."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self._folder = programs, folder
        self.socket = folder / "docker.sock"
        self._send = forward(str(self.socket))

    def __enter__(self) -> Self:
        folder, programs = self._folder, self.programs
        path = f"{programs}/usr/sbin:{programs}/usr/bin:{os.environ['PATH']}"
        command = [
            str(programs / "usr/sbin/dockerd"), f"--host=unix://{self.socket}", f"--data-root={folder}/data",
            f"--exec-root={folder}/exec", f"--pidfile={folder}/pid", "--bridge=none", "--iptables=false",
            "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
        ]  # fmt: skip
        self._server = Server("dockerd", command, folder / "dockerd.log", environment={"PATH": path})
        self._server.wait_until(self._ready, READY_S)
        self.load(IMAGE)
        return self

    @property
    def client(self) -> Path:
        """Docker's command line."""
        return self.programs / "usr/bin/docker"

    def load(self, name: str, *command: str) -> None:
        """Make an image with a shell, which runs a command unless it is told another."""
        image = io.BytesIO()
        with tarfile.open(fileobj=image, mode="w") as tar:
            tar.add(self.programs / "bin/busybox", "bin/busybox")
            for link_name in ("bin/sh", "bin/sleep"):
                link = tarfile.TarInfo(link_name)
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        repository, _, tag = name.partition(":")
        query = {"fromSrc": "-", "repo": repository, "tag": tag, "changes": f"CMD {json.dumps(command)}"}
        self.call("POST", f"/images/create?{urlencode(query)}", raw=image.getvalue())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one in self.call("GET", "/containers/json?all=true"):
            self.call("DELETE", f"/containers/{one['Id']}?force=true")
        self._server.stop()
        # It leaves the host's network, which a container has used, mounted in its folder.
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in [place for place in mounted if place.startswith(f"{self._folder}/")]:
            subprocess.run(["umount", place], check=True)

    def call(self, method: str, path: str, body: Any = None, raw: bytes = b"") -> Any:
        """An answer that is no error."""
        status, answer = self._send(method, path, raw or (b"" if body is None else json.dumps(body).encode()))
        assert status < 400, f"{method} {path}: {status}: {answer!r}"
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            return answer  # a stream of progress

    def _ready(self) -> bool:
        try:
            return self.socket.exists() and self._send("GET", "/_ping", b"")[0] == 200
        except OSError:
            return False
