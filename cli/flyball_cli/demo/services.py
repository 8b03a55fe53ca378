"""The services of the demo: configuration and order of starts."""

import base64
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import yaml

from flyball_cli.demo.children import Child
from flyball_cli.demo.platform import Platform
from flyball_contracts.config import (
    Config,
    DecisionKey,
    FleetConfig,
    PlatformConfig,
    PoolConfig,
    load_config,
    located,
)
from flyball_contracts.errors import ConfigError, TransportError
from flyball_contracts.security.signing import new_key

TICKS_PER_S = 6.0
"""Maximum ticks of the fleet per second of the wall clock; at a higher speed ticks are longer."""
RECORDING_SHARE = 0.75
"""Share of a demo's time in which a recording is played."""
READY_S = 90.0


class Options(msgspec.Struct, frozen=True):
    """Options of the user; ``for_s`` ``None`` runs until interrupted, ``bootstrap`` ``None`` embeds a broker.

    ``broker_port`` is an additional port of the embedded broker; ``None`` leaves it the one that it chose.
    """

    for_s: float | None = None
    headless: bool = False
    recording: Path | None = None
    fleet: Path | None = None
    seed: int | None = None
    bootstrap: str | None = None
    speed: float | None = None
    port: int = 8080
    broker_port: int | None = None


class Plan(msgspec.Struct, frozen=True):
    """The fleet to simulate, and its speed in event seconds per second."""

    fleet: FleetConfig
    speed: float

    @property
    def fast(self) -> bool:
        """Whether the fleet waits for the worker, because the worker's start takes minutes of event time."""
        return self.speed > 2.0


def plan_of(options: Options, config: Config) -> Plan:
    """Fleet and speed of a demo; raises :class:`FlyballError` for an invalid fleet or recording."""
    if options.recording is not None:
        from flyball_cli.demo.recorded import fleet_of_recording, span_and_period_s

        span_s, period_s = span_and_period_s(options.recording)
        speed = options.speed or max(1.0, span_s / (RECORDING_SHARE * (options.for_s or 240.0)))
        tick_s = max(period_s, _tick_s(speed))
        return Plan(fleet_of_recording(options.recording, config.worker, tick_s, options.seed or 1), speed)
    fleet = load_config(options.fleet, FleetConfig) if options.fleet is not None else FleetConfig()
    speed = options.speed or 1.0
    replace = msgspec.structs.replace
    fleet = replace(
        fleet, tick_s=max(fleet.tick_s, _tick_s(speed)), seed=fleet.seed if options.seed is None else options.seed
    )
    if options.fleet is not None:
        from flyball_simulator import Fleet

        with located(options.fleet):
            Fleet(fleet, start_ns=0)
    return Plan(fleet, speed)


def settings_of(config: Config, bootstrap: str, folder: Path, options: Options, plan: Plan) -> Config:
    """Configuration of all services except the platform's address, which is known once it listens."""
    replace = msgspec.structs.replace
    cell = "host" if config.agent.cell == "default" else config.agent.cell
    return replace(
        config,
        kafka=replace(config.kafka, bootstrap=bootstrap),
        agent=replace(config.agent, cell=cell, state_dir=str(folder)),
        actuator=replace(
            config.actuator,
            mode="live",
            clock="event",
            ledger=str(folder / "ledger"),
            group=f"flyball-demo-actuator-{os.getpid()}",
        ),
        worker=replace(config.worker, app=f"flyball-demo-worker-{os.getpid()}"),
        dashboard=replace(config.dashboard, port=options.port),
    )


def signing(config: Config, folder: Path) -> Config:
    """The configuration with a new signing key, unless it has one: the actuator accepts signed decisions only."""
    if config.worker.signing_key:
        return config
    replace, path = msgspec.structs.replace, folder / "worker.pem"
    public = base64.b64encode(new_key(path).public).decode()
    return replace(
        config,
        worker=replace(config.worker, signing_key=str(path)),
        actuator=replace(
            config.actuator,
            keys=(*config.actuator.keys, DecisionKey(public=public, workloads=("*", "pool:*", "node:*"))),
        ),
    )


def write_config(config: Config, path: Path) -> Path:
    """Write a configuration for the services to read."""
    _write(path, config)
    return path


def platform_of(fleet: FleetConfig, url: str, poll_s: float) -> PlatformConfig:
    """The simulated fleet as a platform, with its managed pools, all of which may be bought."""
    managed = [pool for pool in fleet.pools if pool.managed]
    pools = tuple(
        PoolConfig(
            name=pool.name,
            kind="machines",
            resource=pool.name,
            instance_type=pool.instance_type or pool.sku,
            market="spot" if pool.capacity_type == "spot" else "on_demand",
            min_machines=pool.nodes,
            max_machines=max(pool.nodes, pool.max_nodes),
            price_usd_per_hour=pool.price_usd_per_hour or 0.0,
        )
        for pool in managed
    )
    budget = sum(pool.max_machines * pool.price_usd_per_hour for pool in pools) if pools else None
    return PlatformConfig(
        cells=(fleet.cell,), driver="simulated", url=url, poll_s=poll_s, pools=pools, budget_usd_per_hour=budget
    )


def _write(path: Path, content: Config | FleetConfig) -> None:
    try:
        path.write_text(yaml.safe_dump(msgspec.to_builtins(content)), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; make room there, or let TMPDIR name another folder") from error


class Services:
    """The child processes of one demo."""

    def __init__(self, options: Options, plan: Plan, config: Config, config_path: Path, folder: Path) -> None:
        self.children: list[Child] = []
        """The child processes in their order of stopping: the platform last, so that others can still reach it."""
        self.platform: Platform | None = None
        self._options, self._plan, self._config = options, plan, config
        self._config_path, self._folder = config_path, folder

    def start(self, stop: threading.Event) -> None:
        """Start all services; returns early when one fails or ``stop`` is set.

        Raises :class:`TransportError` when the worker or the simulated platform does not become ready.
        """
        options, folder = self._options, self._folder
        self.worker = self._child("worker", "worker", *([] if options.bootstrap else ["--embedded"]))
        description = folder / "fleet.yaml"
        _write(description, self._plan.fleet)
        if self._plan.fast and not self._until(self.worker.health_file.exists, "the worker does not start", stop):
            return
        fleet = self._child(
            "fleet",
            "fleet",
            str(description),
            "--listen",
            "127.0.0.1:0",
            "--baseline",
            "--speed",
            str(self._plan.speed),
        )
        self._child("agent", "agent")
        if not self._until(lambda: _printed(fleet, "platform: "), "the simulated platform does not listen", stop):
            return
        url = _printed(fleet, "platform: ") or ""
        self.platform = Platform(url)
        platforms = (
            platform_of(self._plan.fleet, url, self._poll_s),
            *self._config.actuator.platforms,
        )
        replace = msgspec.structs.replace
        live = replace(self._config, actuator=replace(self._config.actuator, platforms=platforms))
        path = write_config(live, folder / "live.yaml")
        self._child("actuator", "actuate", path=path)
        if not options.headless:
            self._child("dashboard", "dashboard", path=path)
        self.children.remove(fleet)
        self.children.append(fleet)

    def broken(self) -> list[str]:
        """Why services are not running, with the ends of their logs."""
        return [why for child in self.children if (why := child.failure())]

    def url(self) -> str | None:
        """Address of the dashboard, once it has reported it."""
        return next((_printed(child, "dashboard: ") for child in self.children if child.name == "dashboard"), None)

    @property
    def _poll_s(self) -> float:
        return min(0.5, max(0.05, self._plan.fleet.tick_s / self._plan.speed / 2.0))

    def _child(self, name: str, *arguments: str, path: Path | None = None) -> Child:
        beat = ["--health-file", str(self._folder / f"{name}.health")]
        child = Child(name, [*arguments, "--config", str(path or self._config_path), *beat], self._folder)
        self.children.append(child)
        return child

    def _until(self, done: Callable[[], object], problem: str, stop: threading.Event) -> bool:
        """Wait until ``done``; false when a service failed or ``stop`` was set before."""
        give_up = time.monotonic() + READY_S
        while not stop.wait(0.05):
            if done():
                return True
            if self.broken():
                return False
            if time.monotonic() > give_up:
                raise TransportError(f"{problem} within {READY_S:.0f} s:\n{self.children[-1].tail()}")
        return False


def _tick_s(speed: float) -> float:
    return max(1.0, float(math.ceil(speed / TICKS_PER_S)))


def _printed(child: Child, prefix: str) -> str | None:
    for line in child.log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(prefix):
            return line.removeprefix(prefix)
    return None
