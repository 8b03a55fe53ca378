"""Start the services, watch them, end them, and judge."""

import os
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import yaml
from rich.console import Console

from flyball_cli.demo.children import Child, stop_all
from flyball_cli.demo.monitor import KINDS, Monitor, Seen
from flyball_cli.demo.summary import failures, show
from flyball_cli.topics import create_topics, start_group_at_end
from flyball_contracts.config import Config, FleetConfig, load_config
from flyball_contracts.topics import DECISIONS, DEMAND, EVENTS, PROPOSALS, TELEMETRY, TOPICS

SETTLE_S = 15.0
ALL_KINDS_S = 60.0
INTERRUPTED = 130
COLOURS = {"Scale": "cyan", "Migrate": "yellow", "Preempt": "magenta"}


class Options(msgspec.Struct, frozen=True):
    """What the user asked for; ``for_s`` ``None`` runs until interrupted, ``bootstrap`` ``None`` embeds a broker."""

    for_s: float | None = None
    headless: bool = False
    recording: Path | None = None
    fleet: Path | None = None
    seed: int | None = None
    bootstrap: str | None = None
    speed: float | None = None
    port: int = 8080


def run_demo(options: Options, config: Config, stop: threading.Event, console: Console) -> int:
    """Run the demo; 0 when the loop closed, 1 when it did not, 130 when it was interrupted before its time was up.

    Raises :class:`FlyballError` when it cannot start.
    """
    span_s = _span_s(options.recording)
    _check_fleet(options.fleet)
    with ExitStack() as stack:
        bootstrap = options.bootstrap or stack.enter_context(_broker())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flyball-demo-")))
        config = _demo_config(config, bootstrap, folder, options)
        if options.bootstrap is not None:
            create_topics(config.kafka)
            # What earlier runs left there is not ours to decide on, nor to carry out once more.
            start_group_at_end(config.kafka, config.worker.app, (TELEMETRY, EVENTS, DEMAND, PROPOSALS))
            start_group_at_end(config.kafka, config.actuator.group, (DECISIONS,))
        config_path = folder / "flyball.yaml"
        config_path.write_text(yaml.safe_dump(msgspec.to_builtins(config)), encoding="utf-8")
        monitor = Monitor(config.kafka)
        stack.callback(monitor.close)
        began = time.monotonic()
        children = _start(options, config_path, folder, bootstrap, span_s)
        try:
            first_s = _watch(options, monitor, children, stop, console, began)
            if not stop.is_set() and not any(child.failure() for child in children):
                _end_in_order(children, monitor, console)
        finally:
            stop_all(children)
        monitor.poll(0.0)
        broken = [why for child in children if (why := child.failure())]
        own_fleet = options.recording is None and options.fleet is None
        expected = KINDS if own_fleet and (options.for_s or 0) >= ALL_KINDS_S else ()
        problems = broken if stop.is_set() else failures(monitor, expected, broken)
        show(console, monitor, problems, first_s, time.monotonic() - began, interrupted=stop.is_set())
        if problems:
            return 1
        return INTERRUPTED if stop.is_set() and options.for_s is not None else 0


def _span_s(recording: Path | None) -> float:
    if recording is None:
        return 0.0
    from flyball_streams.recording import Recording

    first, last = Recording.open(recording).span()
    return (last - first) / 1e9


def _check_fleet(description: Path | None) -> None:
    """Raise :class:`ConfigError` for a fleet that cannot be, before anything is started."""
    if description is not None:
        from flyball_collectors.fleet import Fleet

        Fleet(load_config(description, FleetConfig), start_ns=0)


@contextmanager
def _broker() -> Generator[str]:
    from flyball_streams.broker import EmbeddedBroker

    with EmbeddedBroker({name: topic.partitions for name, topic in TOPICS.items()}) as broker:
        yield broker.bootstrap


def _demo_config(config: Config, bootstrap: str, folder: Path, options: Options) -> Config:
    replace = msgspec.structs.replace
    cell = "host" if config.agent.cell == "default" else config.agent.cell
    return replace(
        config,
        kafka=replace(config.kafka, bootstrap=bootstrap),
        agent=replace(config.agent, cell=cell, state_dir=str(folder)),
        actuator=replace(config.actuator, clock="event", ledger="", group=f"flyball-demo-actuator-{os.getpid()}"),
        worker=replace(config.worker, app=f"flyball-demo-worker-{os.getpid()}"),
        dashboard=replace(config.dashboard, port=options.port),
    )


def _start(options: Options, config_path: Path, folder: Path, bootstrap: str, span_s: float) -> list[Child]:
    """Start the services in the order in which they are to be ended: sources first."""
    shared = ["--config", str(config_path)]

    def child(name: str, *arguments: str, health: bool = True) -> Child:
        beat = ["--health-file", str(folder / f"{name}.health")] if health else []
        return Child(name, [*arguments, *shared, *beat], folder)

    worker = child("worker", "worker", *([] if options.bootstrap else ["--embedded"]))
    actuator = child("actuator", "actuate")
    later = [] if options.headless else [child("dashboard", "dashboard")]
    if options.recording is None:
        seed = [] if options.seed is None else ["--seed", str(options.seed)]
        fleet = [] if options.fleet is None else [str(options.fleet)]
        source = child("fleet", "fleet", *fleet, *seed, "--speed", str(options.speed or 1.0))
    else:
        speed = options.speed or max(1.0, span_s / (0.6 * (options.for_s or 120.0)))
        source = child(
            "replay", "replay", str(options.recording), "--to-broker", "--rebase", "--speed", str(speed), health=False
        )
    return [source, child("agent", "agent"), worker, actuator, *later]


def _watch(
    options: Options,
    monitor: Monitor,
    children: list[Child],
    stop: threading.Event,
    console: Console,
    began: float,
) -> float | None:
    """Show decisions as they come until the time is up or a service fails; seconds to the first one."""
    shown: set[str] = set()
    first_s: float | None = None
    announced = options.headless
    with console.status("starting: broker, worker, actuator, agent, source") as status:
        while not stop.is_set() and (options.for_s is None or time.monotonic() - began < options.for_s):
            monitor.poll(0.3)
            if any(child.failure() for child in children):
                return first_s
            for identity, seen in monitor.decisions.items():
                if identity not in shown:
                    shown.add(identity)
                    first_s = first_s or time.monotonic() - began
                    _print(console, seen, time.monotonic() - began)
            if not announced and (url := _url(children)):
                announced = True
                console.print(f"[bold]dashboard[/]: {url}   (Ctrl-C ends the demo)")
            total = ", ".join(f"{monitor.kinds[kind]} {kind}" for kind in KINDS)
            status.update(f"{time.monotonic() - began:.0f} s: {total}; {len(monitor.outcomes)} outcomes")
    return first_s


def _end_in_order(children: list[Child], monitor: Monitor, console: Console) -> None:
    """End sources, then the worker, then the actuator, each when what came before has been worked off."""
    source, agent, worker, *_ = children
    with console.status("waiting for the last outcomes"):
        for ending in ([source, agent], [worker]):
            stop_all(ending)
            deadline = time.monotonic() + SETTLE_S
            monitor.poll(0.5)
            while monitor.open_decisions() and time.monotonic() < deadline:
                monitor.poll(0.3)


def _print(console: Console, seen: Seen, at_s: float) -> None:
    from rich.markup import escape

    line = f"{at_s:5.0f} s [{COLOURS[seen.kind]} bold]{seen.kind:8}[/] {escape(seen.reason)}"
    console.print(line, soft_wrap=not console.is_terminal)


def _url(children: list[Child]) -> str | None:
    for child in children:
        if child.name == "dashboard":
            for line in child.log.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith("dashboard: "):
                    return line.removeprefix("dashboard: ")
    return None
