"""A Docker engine that runs nothing, and answers as the Engine API says; see :class:`Double`.

Where tests hold it to a real engine it is the same tests that run on both.
"""

import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

NEVER = "0001-01-01T00:00:00Z"
Reply = tuple[int, Any]


class Double:
    """Containers and volumes in memory; called with method, path and body.

    ``experimental`` it takes checkpoints. ``events`` are the changes of containers, as (what, name).
    """

    def __init__(self, *, experimental: bool = False, cpus: float = 2.0) -> None:
        self.experimental, self.cpus = experimental, cpus
        self.containers: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.images = {"flyball-test:1": "sha256:" + "a" * 64}
        self.events: list[tuple[str, str]] = []
        self._lock = threading.RLock()
        self._ticks = 0

    def __call__(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path = re.sub(r"^/v1\.\d+", "", parts.path)
        with self._lock:
            status, answer = self._answer(method, path, query, json.loads(body) if body else {})
        return status, b"" if answer is None else json.dumps(answer).encode()

    def _answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Reply:
        if path == "/version":
            return 200, {"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}
        if path == "/info":
            return 200, {"Name": "double", "ExperimentalBuild": self.experimental, "NCPU": int(self.cpus)}
        _, kind, *rest = path.split("/")
        if kind == "volumes":
            return self._volumes(method, [unquote(one) for one in rest], query, body)
        if kind == "containers":
            return self._containers(method, [unquote(one) for one in rest], query, body)
        return 404, {"message": "page not found"}

    def _volumes(self, method: str, rest: list[str], query: dict[str, str], body: dict[str, Any]) -> Reply:
        if rest == ["create"] and method == "POST":
            made = {"Name": body["Name"], "Labels": body["Labels"], "Driver": "local", "Scope": "local"}
            return 201, self.volumes.setdefault(body["Name"], made)
        if not rest:
            return 200, {
                "Volumes": [v for v in self.volumes.values() if _matches(v["Labels"], query)],
                "Warnings": None,
            }
        if rest[0] not in self.volumes:
            return 404, {"message": f"get {rest[0]}: no such volume"}
        if method == "DELETE":
            del self.volumes[rest[0]]
            return 204, None
        return 200, self.volumes[rest[0]]

    def _containers(self, method: str, rest: list[str], query: dict[str, str], body: dict[str, Any]) -> Reply:
        if rest == ["json"]:
            found = [c for c in self.containers.values() if _matches(c["Config"]["Labels"], query)]
            return 200, [{"Id": c["Id"], "Names": [c["Name"]], "State": c["State"]["Status"]} for c in found]
        if rest == ["create"]:
            return self._create(query["name"], body)
        container = self._find(rest[0])
        if container is None:
            return 404, {"message": f"No such container: {rest[0]}"}
        if rest[1:] == [] and method == "DELETE":
            del self.containers[container["Id"]]
            return 204, None
        if rest[1] == "json":
            return 200, container
        if rest[1] == "checkpoints":
            return self._checkpoints(method, container, rest[2:], body)
        verbs: dict[str, Callable[..., Reply]] = {
            "start": self._start, "stop": self._stop, "pause": self._pause, "unpause": self._unpause,
        }  # fmt: skip
        if rest[1] == "update":
            return self._update(container, body)
        return verbs[rest[1]](container, query) if rest[1] in verbs else (404, {"message": "page not found"})

    def _create(self, name: str, body: dict[str, Any]) -> Reply:
        if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name):
            return 400, {"message": f"Invalid container name ({name})"}
        image = body.get("Image", "")
        if image not in self.images and image not in self.images.values():
            return 404, {"message": f"No such image: {image}"}
        taken = self._find(name)
        if taken is not None:
            return 409, {"message": f'Conflict. The container name "/{name}" is already in use by {taken["Id"]}'}
        id_ = secrets.token_hex(32)
        host: dict[str, Any] = {"AutoRemove": False, "NanoCpus": 0, "Memory": 0, "MemorySwap": 0, "PortBindings": {}}
        host |= body.get("HostConfig") or {}
        if host["Memory"] and not host["MemorySwap"]:
            host["MemorySwap"] = 2 * host["Memory"]
        config = {key: value for key, value in body.items() if key not in ("HostConfig", "NetworkingConfig")}
        self.containers[id_] = {
            "Id": id_,
            "Name": f"/{name}",
            "Created": self._now(),
            "Image": self.images.get(image, image),
            "State": _state("created", NEVER),
            "Config": {"Labels": {}, "Hostname": id_[:12], **config},
            "HostConfig": host,
            "NetworkSettings": {"Networks": {}},
            "saved": {},
        }
        self._happened("create", self.containers[id_])
        return 201, {"Id": id_, "Warnings": []}

    def _start(self, container: dict[str, Any], query: dict[str, str]) -> Reply:
        state = container["State"]
        if state["Paused"]:
            return 409, {"message": "cannot start a paused container, try unpause instead"}
        if state["Running"]:
            return 304, None
        saved = query.get("checkpoint")
        if saved is not None and saved not in container["saved"]:
            return 404, {"message": f"checkpoint {saved} does not exist for container {container['Id']}"}
        container["State"] = _state("running", self._now())
        self._happened("restore" if saved else "start", container)
        return 204, None

    def _stop(self, container: dict[str, Any], _query: dict[str, str]) -> Reply:
        if not container["State"]["Running"]:
            return 304, None
        self.end(container["Name"][1:])
        return 204, None

    def _pause(self, container: dict[str, Any], _query: dict[str, str]) -> Reply:
        state = container["State"]
        if not state["Running"] or state["Paused"]:
            why = "is already paused" if state["Paused"] else "is not running"
            return 409, {"message": f"Container {container['Id']} {why}"}
        state |= {"Status": "paused", "Paused": True}
        self._happened("pause", container)
        return 204, None

    def _unpause(self, container: dict[str, Any], _query: dict[str, str]) -> Reply:
        if not container["State"]["Paused"]:
            return 500, {"message": f"Container {container['Id']} is not paused"}
        container["State"] |= {"Status": "running", "Paused": False}
        self._happened("unpause", container)
        return 204, None

    def _update(self, container: dict[str, Any], body: dict[str, Any]) -> Reply:
        host = container["HostConfig"]
        if body.get("NanoCpus", 0) > self.cpus * 1e9:
            return 400, {"message": f"Range of CPUs is from 0.01 to {self.cpus:.2f}, as there are only so many"}
        if 0 < body.get("Memory", 0) < 6 << 20:
            return 400, {"message": "Minimum memory limit allowed is 6MB"}
        if not body.get("MemorySwap") and body.get("Memory", 0) > host["MemorySwap"]:
            return 409, {"message": "Memory limit should be smaller than already set memoryswap limit"}
        host |= body
        self._happened("update", container)
        return 200, {"Warnings": None}

    def _checkpoints(self, method: str, container: dict[str, Any], rest: list[str], body: dict[str, Any]) -> Reply:
        if not self.experimental:
            return 501, {"message": "checkpoints are only supported on an experimental daemon"}
        saved: dict[str, bool] = container["saved"]
        if method == "POST":
            if not container["State"]["Running"]:
                return 409, {"message": f"Container {container['Id']} is not running"}
            if body["CheckpointID"] in saved:
                return 409, {"message": "checkpoint already exists"}
            saved[body["CheckpointID"]] = True
            if body.get("Exit"):
                self.end(container["Name"][1:], "checkpoint")
            return 201, None
        if method == "DELETE":
            return (204, None) if saved.pop(rest[0], None) else (404, {"message": "no such checkpoint"})
        return 200, [{"Name": name} for name in saved]

    def end(self, name: str, what: str = "die") -> None:
        """Let a container end."""
        container = self._find(name)
        assert container is not None
        container["State"] |= {"Status": "exited", "Running": False, "Paused": False}
        self._happened(what, container)

    def _find(self, name: str) -> dict[str, Any] | None:
        by_name = (c for c in self.containers.values() if c["Name"] == f"/{name}" or c["Id"] == name)
        return next(by_name, None)

    def _happened(self, what: str, container: dict[str, Any]) -> None:
        self.events.append((what, container["Name"][1:]))

    def _now(self) -> str:
        self._ticks += 1
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{self._ticks:09d}Z"


def _state(status: str, started_at: str) -> dict[str, Any]:
    return {
        "Status": status, "Running": status == "running", "Paused": False, "Restarting": False, "StartedAt": started_at,
        "Error": "",
    }  # fmt: skip


def _matches(labels: dict[str, str] | None, query: dict[str, str]) -> bool:
    wanted: list[str] = json.loads(query.get("filters", "{}")).get("label", [])
    pairs = [one.partition("=") for one in wanted]
    return all(key in (labels or {}) and (not equals or (labels or {})[key] == value) for key, equals, value in pairs)
