"""Containers of a workload, as the engine shows them."""

import hashlib
from typing import Any, Literal

import msgspec

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.docker.engine import Answer, Engine, segment
from flyball_contracts.records import Resources, SubjectState

WORKLOAD = "flyball.dev/workload"
PREEMPT = "flyball.dev/preempt"
DECISION = "flyball.dev/decision"
COPY_OF = "flyball.dev/copy-of"
How = Literal["stop", "pause", "checkpoint"]
STOP_TIMEOUT_S = 10
"""Seconds that the engine waits after the stop signal by default."""


class Health(msgspec.Struct, frozen=True, rename="pascal"):
    """Health of a container."""

    status: str = "none"


class State(msgspec.Struct, frozen=True, rename="pascal"):
    """State of a container."""

    status: str
    running: bool = False
    paused: bool = False
    restarting: bool = False
    started_at: str = ""
    error: str = ""
    health: Health | None = None


class Configured(msgspec.Struct, frozen=True, rename="pascal"):
    """Configuration by the container's owner."""

    labels: dict[str, str] | None = None
    stop_timeout: int | None = None


class Host(msgspec.Struct, frozen=True, rename="pascal"):
    """Resource limits and host options."""

    auto_remove: bool = False
    nano_cpus: int = 0
    cpu_period: int = 0
    cpu_quota: int = 0
    memory: int = 0
    memory_swap: int = 0


class Shown(msgspec.Struct, frozen=True, rename="pascal"):
    """The fields of the engine's answer that are used."""

    id: str
    name: str
    created: str
    state: State
    config: Configured
    host_config: Host


class Container(msgspec.Struct, frozen=True):
    """One container; ``raw`` is the engine's full answer."""

    shown: Shown
    raw: dict[str, Any]

    @property
    def id(self) -> str:
        """The engine's own id."""
        return self.shown.id

    @property
    def name(self) -> str:
        """Its name; decisions use it as the replica's name."""
        return self.shown.name.removeprefix("/")

    @property
    def labels(self) -> dict[str, str]:
        """Its labels; they never change."""
        return self.shown.config.labels or {}

    @property
    def is_replica(self) -> bool:
        """Whether it counts as a replica: it runs and is not paused, or is restarting."""
        state = self.shown.state
        return (state.running or state.restarting) and not state.paused

    @property
    def ready(self) -> bool:
        """Whether it is ready; with a health check, whether it is healthy."""
        state = self.shown.state
        healthy = state.health is None or state.health.status in ("healthy", "none", "")
        return self.is_replica and not state.restarting and healthy

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.shown.state.paused

    @property
    def preempt(self) -> str:
        """How its owner wants it preempted."""
        return self.labels.get(PREEMPT, "stop")

    @property
    def grace_s(self) -> int:
        """Seconds it may take to stop."""
        given = self.shown.config.stop_timeout
        return STOP_TIMEOUT_S if given is None else given

    @property
    def cpu(self) -> float | None:
        """CPU limit in cores, ``None`` without one."""
        host = self.shown.host_config
        if host.nano_cpus:
            return host.nano_cpus / 1e9
        return host.cpu_quota / (host.cpu_period or 100_000) if host.cpu_quota > 0 else None

    @property
    def resources(self) -> Resources:
        """Its limits."""
        return Resources(cpu=self.cpu, memory_bytes=self.shown.host_config.memory or None)


def containers_of(engine: Engine, workload: str) -> list[Container]:
    """Containers with the workload's label, running or not, oldest first; raises :class:`PlatformError`."""
    listed = engine.get("/containers/json", all="true", filters={"label": [f"{WORKLOAD}={workload}"]})
    if listed.status != 200 or not isinstance(listed.body, list):
        raise PlatformError(f"{engine.url}: containers cannot be listed: {listed.message}")
    found = [inspect(engine, str(entry["Id"])) for entry in listed.entries]
    return sorted((one for one in found if one is not None), key=lambda one: (one.shown.created, one.name))


def inspect(engine: Engine, name: str) -> Container | None:
    """Read a container by id or name; ``None`` if there is none."""
    answer = engine.get(f"/containers/{segment(name)}/json")
    if answer.status == 404:
        return None
    return _read(engine, answer)


def part(of: dict[str, Any], key: str) -> dict[str, Any]:
    """An object in an answer; empty if null."""
    found: dict[str, Any] | None = of.get(key)
    return found or {}


def version_of(containers: list[Container]) -> str:
    """Hash that changes whenever anything changes that a decision could depend on."""
    parts = [
        (one.id, one.shown.state.status, one.shown.state.started_at, one.resources.cpu, one.resources.memory_bytes)
        for one in sorted(containers, key=lambda one: one.id)
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def state_of(containers: list[Container]) -> SubjectState:
    """Containers as replicas."""
    is_replica = [one for one in containers if one.is_replica]
    limits = {(one.resources.cpu, one.resources.memory_bytes) for one in is_replica}
    return SubjectState(
        replicas=len(is_replica),
        ready=sum(one.ready for one in containers),
        suspended=bool(containers) and not is_replica,
        resources=is_replica[0].resources if len(limits) == 1 and limits != {(None, None)} else None,
        version=version_of(containers),
    )


def unknown(workload: str) -> Rejected:
    """Rejection: no container has the workload's label."""
    return Rejected(
        "unknown_target",
        f"no container has the label {WORKLOAD}={workload}; start one with docker run --label {WORKLOAD}={workload}",
    )


def _read(engine: Engine, answer: Answer) -> Container:
    if answer.status != 200:
        raise PlatformError(f"{engine.url}: a container cannot be inspected: {answer.message}")
    try:
        return Container(msgspec.convert(answer.body, Shown), answer.fields)
    except msgspec.ValidationError as error:
        raise PlatformError(f"{engine.url}: the answer is no container: {error}") from error
