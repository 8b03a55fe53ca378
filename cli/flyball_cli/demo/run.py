"""Starts the services, observes them, stops them, and checks the result."""

import shutil
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from flyball_cli.demo.broker import embedded
from flyball_cli.demo.children import stop_all
from flyball_cli.demo.monitor import Monitor, RecentDecision
from flyball_cli.demo.services import Options, Services, plan_of, settings_of, signing, write_config
from flyball_cli.demo.summary import Verdict, failures, show
from flyball_cli.topics import create_topics, start_group_at_end
from flyball_contracts.config import Config
from flyball_contracts.errors import ConfigError, Stopped, TransportError
from flyball_contracts.records import DECISION_TYPES
from flyball_contracts.topics import DECISIONS, DEMAND, EVENTS, PROPOSALS, TELEMETRY

SETTLE_S = 30.0
ALL_KINDS_S = 60.0
ROOM_BYTES = 8 << 20
"""Free space that the demo needs for temporary files: ledger, logs and configuration of a day."""
_OWN_FLEET = ("Scale", "Migrate", "Preempt")
COLOURS = {"Scale": "cyan", "Migrate": "yellow", "Preempt": "magenta", "Check": "green"}


def run_demo(options: Options, config: Config, stop: threading.Event, console: Console) -> int:
    """Run the demo; 0 when the loop closed, 1 when it did not.

    Raises :class:`FlyballError` when it cannot start, and :class:`Stopped` when it was stopped before its time was up.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flyball-demo-")))
        if (free := shutil.disk_usage(folder).free) < ROOM_BYTES:
            raise ConfigError(
                f"TMPDIR: {folder.parent} has {free / 2**20:.1f} MiB free and needs {ROOM_BYTES / 2**20:.0f}; "
                "make room there, or let TMPDIR name another folder"
            )
        plan = plan_of(options, config)  # raises before anything is started
        bootstrap = options.bootstrap
        if bootstrap is None:
            bootstrap, public = stack.enter_context(embedded(options.broker_port))
            console.print(f"broker: {public} (Kafka's protocol, no persistence)", highlight=False)
        config = signing(settings_of(config, bootstrap, folder, options, plan), folder)
        if options.bootstrap is not None:
            create_topics(config.kafka, stop=stop)
            # This run must neither decide on what earlier runs left there, nor carry it out again.
            start_group_at_end(config.kafka, config.worker.app, (TELEMETRY, EVENTS, DEMAND, PROPOSALS))
            start_group_at_end(config.kafka, config.actuator.group, (DECISIONS,))
        config_path = write_config(config, folder / "flyball.yaml")
        monitor = Monitor(config.kafka)
        stack.callback(monitor.close)
        services = Services(options, plan, config, config_path, folder)
        try:
            services.start(stop)
            began = time.monotonic()  # the demo must last as long on a machine that starts slowly
            first_s = _watch(options, monitor, services, stop, console, began)
            if not stop.is_set() and not services.broken():
                _settle(services, monitor, console)
            wall_s = time.monotonic() - began
            verdict = _judge(options, services, monitor, stop.is_set())
        finally:
            stop_all(services.children)
        show(console, monitor, verdict, first_s, wall_s, interrupted=stop.is_set())
        if verdict.problems:
            return 1
        if stop.is_set() and options.for_s is not None:
            raise Stopped("the demo was stopped before its time was up")
        return 0


def _judge(options: Options, services: Services, monitor: Monitor, interrupted: bool) -> Verdict:
    broken = services.broken()
    monitor.poll(0.0)
    try:
        platform = services.platform
        accounts = platform.accounts() if platform is not None else {}
        operations = platform.operations() if platform is not None else {}
    except TransportError as error:
        return Verdict([*broken, str(error)], {}, {})
    own_fleet = options.recording is None and options.fleet is None
    long_enough = (options.for_s or 0) * min(options.speed or 1.0, 1.0) >= ALL_KINDS_S
    expected = _OWN_FLEET if own_fleet and long_enough else ()
    problems = broken if interrupted else failures(monitor, operations, expected, broken)
    return Verdict(problems, accounts, operations)


def _watch(
    options: Options,
    monitor: Monitor,
    services: Services,
    stop: threading.Event,
    console: Console,
    began: float,
) -> float | None:
    """Show decisions as they come until the time is up or a service fails; return the seconds to the first one."""
    shown: set[str] = set()
    first_s: float | None = None
    announced = options.headless
    with console.status("starting: broker, worker, platform, actuator, agent") as status:
        while not stop.is_set() and (options.for_s is None or time.monotonic() - began < options.for_s):
            monitor.poll(0.3)
            if services.broken():
                return first_s
            for identity, seen in list(monitor.decisions.items()):
                if identity not in shown:
                    shown.add(identity)
                    first_s = first_s or time.monotonic() - began
                    _print(console, seen, time.monotonic() - began)
            if not announced and (url := services.url()):
                announced = True
                console.print(f"[bold]dashboard[/]: {url}   (Ctrl-C ends the demo)")
            status.update(_status(options, monitor, time.monotonic() - began))
    return first_s


def _status(options: Options, monitor: Monitor, wall_s: float) -> str:
    total = ", ".join(f"{monitor.kinds[kind]} {kind}" for kind in DECISION_TYPES)
    done = sum(o.status == "done" for o in monitor.outcomes.values())
    span = f"{wall_s:.0f} s" if options.for_s is None else f"{wall_s:.0f} of {options.for_s:.0f} s"
    return f"{span}: {total}; {done} effects observed, {len(monitor.open_decisions())} under way"


def _settle(services: Services, monitor: Monitor, console: Console) -> None:
    """End the worker, so that there are no more decisions, and wait until the platform has shown the last effects."""
    with console.status("waiting for the last effects"):
        stop_all([services.worker])
        deadline = time.monotonic() + SETTLE_S
        monitor.poll(0.5)
        while monitor.open_decisions() and time.monotonic() < deadline and not services.broken():
            monitor.poll(0.3)


def _print(console: Console, seen: RecentDecision, at_s: float) -> None:
    line = f"{at_s:5.0f} s [{COLOURS[seen.kind]} bold]{seen.kind:8}[/] {escape(seen.reason)}"
    console.print(line, soft_wrap=not console.is_terminal)
