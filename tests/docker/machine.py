"""What a test sees of a machine with a Docker engine; see :class:`Machine`."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.docker.proxy import Backend, FaultProxy

from flyball_actuators.platforms.docker import DockerPlatform
from flyball_contracts.config import PlatformConfig

IMAGE = "flyball-test:1"
DEADLINE_S = 90.0


class Machine:
    """Speaks with the engine itself; the platform goes through ``proxy``."""

    def __init__(self, backend: Backend, folder: Path) -> None:
        self._backend = backend
        self.proxy = FaultProxy(backend, folder)
        self.since_s = time.time()

    def platform(self, *, timeout_s: float = 5.0, ahead_s: float = 0.0) -> DockerPlatform:
        """A platform of its own, as a process that has just started has it."""
        entry = PlatformConfig(driver="docker", url=self.proxy.url, timeout_s=timeout_s)
        return DockerPlatform(entry, clock=lambda: time.time_ns() + round(ahead_s * 1e9))

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, raw = self._backend(method, "/v1.41" + path, b"" if body is None else json.dumps(body).encode())
        return status, json.loads(raw) if raw.strip() else None

    def make(self, name: str, *, workload: str = "chat", run: bool = True, **more: Any) -> str:
        """A container that sleeps; ``more`` is of the body, whose ``HostConfig`` has no network."""
        labels = {"flyball.dev/workload": workload, **more.pop("Labels", {})}
        host = {"NetworkMode": "none", **more.pop("HostConfig", {})}
        command = more.pop("Cmd", ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"])
        body = {"Image": IMAGE, "Cmd": command, "Labels": labels, "HostConfig": host, **more}
        status, made = self.call("POST", f"/containers/create?name={name}", body)
        assert status == 201, made
        if run:
            assert self.call("POST", f"/containers/{name}/start")[0] == 204
        return str(made["Id"])

    def state(self, name: str) -> str:
        return str(self.shown(name)["State"]["Status"])

    def shown(self, name: str) -> dict[str, Any]:
        status, found = self.call("GET", f"/containers/{name}/json")
        assert status == 200, found
        return dict(found)

    def states(self, workload: str = "chat") -> dict[str, str]:
        query = urlencode({"all": "true", "filters": json.dumps({"label": [f"flyball.dev/workload={workload}"]})})
        found = self.call("GET", f"/containers/json?{query}")[1]
        return {one["Names"][0][1:]: one["State"] for one in found}

    def running(self, workload: str = "chat") -> int:
        return sum(state == "running" for state in self.states(workload).values())

    def clear(self) -> None:
        for one in self.call("GET", "/containers/json?all=true")[1]:
            self.call("DELETE", f"/containers/{one['Id']}?force=true")
        for volume in self.call("GET", "/volumes")[1]["Volumes"] or ():
            self.call("DELETE", f"/volumes/{volume['Name']}")
        self.proxy.close()
