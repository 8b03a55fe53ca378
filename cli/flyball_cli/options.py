"""Options that several commands share."""

import functools
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from flyball_cli import signals
from flyball_contracts.config import Config, load_config, located
from flyball_contracts.errors import ConfigError, Stopped
from flyball_contracts.health import HealthFile

F = TypeVar("F", bound=Callable[..., Any])
BEAT_S = 2.0
DAY_S = 86_400.0


class Finite(click.FloatRange):
    """A number in a range, excluding "nan" and "inf"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; a usage error for invalid text."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def common(function: F) -> F:
    """``--config``, ``--bootstrap`` and ``--log-level``."""
    for option in (
        click.option("--log-level", default="WARNING", show_default=True, help="DEBUG, INFO, WARNING or ERROR."),
        click.option("--bootstrap", metavar="HOST:PORT", help="Kafka broker; overrides the file."),
        click.option(
            "--config",
            "config_path",
            type=click.Path(path_type=Path),
            help="YAML file; see `flyball config example`.",
        ),
    ):
        function = option(function)
    return function


def with_config(function: F) -> F:
    """The options of :func:`common`; the command gets the ``config`` that they give."""

    @functools.wraps(function)
    def command(*, config_path: Path | None, bootstrap: str | None, log_level: str, **others: Any) -> Any:
        return function(config=configured(config_path, bootstrap, log_level), **others)

    return common(cast("F", command))


def health_option(function: F) -> F:
    """``--health-file``."""
    option = click.option(
        "--health-file",
        type=click.Path(path_type=Path),
        help="File to touch every few seconds while all is well; see `flyball health`.",
    )
    return option(function)


def configured(config_path: Path | None, bootstrap: str | None, log_level: str) -> Config:
    """Configuration of a command, with logging set up; raises :class:`ConfigError`."""
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise click.BadParameter(f"{log_level!r} is not DEBUG, INFO, WARNING or ERROR", param_hint="--log-level")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", force=True)
    return load(config_path, bootstrap)


def load(config_path: Path | None, bootstrap: str | None) -> Config:
    """Configuration of a file, or the default one, with the broker of the command line; raises :class:`ConfigError`."""
    config = load_config(config_path, Config) if config_path else Config()
    if bootstrap is not None:
        if not bootstrap.strip():
            raise click.BadParameter("it is empty; give HOST:PORT, or leave it out", param_hint="--bootstrap")
        try:
            kafka = msgspec.structs.replace(config.kafka, bootstrap=bootstrap)
        except ValueError as error:
            raise click.BadParameter(str(error).removeprefix("bootstrap: "), param_hint="--bootstrap") from error
        config = msgspec.structs.replace(config, kafka=kafka)
    if config_path is not None and config.kafka.client:
        with located(config_path):
            _check_client(config.kafka.client)
    return config


def _check_client(settings: dict[str, str]) -> None:
    from confluent_kafka import KafkaException

    from flyball_contracts.kafka import open_producer

    try:  # without an address the client connects to nothing
        open_producer(settings, logging.getLogger("flyball.kafka.client.check"), "check", log_errors=False)
    except KafkaException as error:
        raise ConfigError(f"kafka.client: {error.args[0].str()}") from error


@contextmanager
def until_signal(health_file: Path | None = None) -> Generator[threading.Event]:
    """An event that SIGTERM or SIGINT sets, and SIGHUP, which is turned into SIGTERM at the start.

    A signal that came earlier, and whose exception a module has caught, ends the command at once. If the block ends by
    :class:`Stopped`, the command ends with the exit status of the signal. ``health_file`` is touched meanwhile: it
    shows that the process runs. A loop that can show more calls :class:`Pulse` itself.
    """
    if signals.received:
        raise signals.Ended(signals.received[0])
    stop, received = threading.Event(), list[int]()

    def end(number: int, _frame: object) -> None:
        received.append(number)
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    beat = threading.Thread(target=_beat, args=(Pulse(health_file), stop), name="health", daemon=True)
    beat.start()
    try:
        yield stop
    except Stopped:
        if not received:  # the time was up; no signal ended the command
            raise
        sys.exit(128 + received[0])
    finally:
        stop.set()
        beat.join()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def on_hangup(function: Callable[[], object]) -> Generator[None]:
    """SIGHUP calls ``function`` in the block."""
    before = signal.signal(signal.SIGHUP, lambda _signum, _frame: function())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def wait_beating(seconds: float, stop: threading.Event, beat: Callable[[], object], step_s: float) -> bool:
    """Wait like ``stop.wait``, and call ``beat`` at the start and every ``step_s`` seconds."""
    ends_s = time.monotonic() + seconds
    while True:
        beat()
        left_s = ends_s - time.monotonic()
        if stop.wait(min(max(left_s, 0.0), step_s)):
            return True
        if left_s <= step_s:
            return False


class Pulse:
    """Touches a health file at most every :data:`BEAT_S` seconds; without a file it does nothing."""

    def __init__(self, health_file: Path | None) -> None:
        self._file = HealthFile(health_file)
        self._next_s = 0.0

    def beat(self) -> None:
        """Show that the caller's loop runs."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._file.touch()
            self._next_s = now_s + BEAT_S


def _beat(pulse: Pulse, stop: threading.Event) -> None:
    pulse.beat()
    while not stop.wait(BEAT_S):
        pulse.beat()


@contextmanager
def progress_bar(label: str) -> Generator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere; the callable takes (done, total), total 0 if unknown."""
    from rich.console import Console  # services do not load it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(label, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None)

        yield update
