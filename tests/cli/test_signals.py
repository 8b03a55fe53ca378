"""A command that is terminated: while it is imported, while no broker answers, and when its terminal is closed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import command, environment

from flyball_cli.main import flyball, main
from flyball_cli.signals import Ended
from flyball_contracts.config import Config
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.topics import TELEMETRY, TOPICS

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143}
INTERRUPTED_IMPORT = """
import os, runpy, sys
module, number = sys.argv.pop(1), int(sys.argv.pop(1))
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Finder())
runpy.run_module("flyball_cli", run_name="__main__", alter_sys=True)
"""
INTERRUPTED_COMPILER = """
import os, runpy, sys
from jax import monitoring
number = int(sys.argv.pop(1))
def compiled(event, seconds, **more):
    if event.endswith("backend_compile_duration"):
        print("compiling", file=sys.stderr)
        os.kill(os.getpid(), number)
monitoring.register_event_duration_secs_listener(compiled)
runpy.run_module("flyball_cli", run_name="__main__", alter_sys=True)
"""
"""Sends itself a signal with each function that it compiles."""


def interrupted(module: str, number: signal.Signals, *arguments: str) -> tuple[int, str]:
    """Exit status and errors of a command that gets a signal when it imports a module."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module, str(int(number)), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "number"),
    [
        *(("click", number) for number in SIGNALS),
        ("flyball_cli.commands.setup.topics_command", signal.SIGTERM),
        ("confluent_kafka", signal.SIGINT),
    ],
)
def test_while_modules_are_imported(module: str, number: signal.Signals) -> None:
    assert interrupted(module, number, "topics", "--create") == (STATUS[number], "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["worker"],
        ["actuate"],
        ["record", "new.parquet"],
        ["replay", "RECORDING", "--to-broker"],
        ["sink", "influx"],
        ["fleet"],
        ["demo", "--headless", "--for", "20"],
        ["topics", "--create"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_while_a_broker_reports_nothing(
    arguments: list[str], recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFLUX_TOKEN", "none")
    config, folder = tmp_path / "flyball.yaml", tmp_path / "temporary"
    config.write_text('influx: {url: "http://127.0.0.1:9"}\n')
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60.0)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        given = [str(recording) if a == "RECORDING" else a for a in arguments]
        with started(given, folder, "--config", str(config), "--bootstrap", address) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "error:" not in errors
    assert list(folder.iterdir()) == []


def test_when_a_library_catches_it_the_command_ends_later() -> None:
    """As a library in C may do that imports something and takes any error for a module that is missing."""
    swallowed = INTERRUPTED_IMPORT.replace("            os.kill", "            with suppress(BaseException): os.kill")
    done = subprocess.run(
        [sys.executable, "-c", f"from contextlib import suppress{swallowed}", "uvicorn", "1", "dashboard"],
        capture_output=True, text=True, timeout=60, env=environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (STATUS[signal.SIGHUP], "")


def test_a_closed_terminal_ends_the_demo_in_order(tmp_path: Path) -> None:
    with started(["demo", "--headless", "--for", "60"], tmp_path) as process:
        while not list(tmp_path.glob("flyball-demo-*/*.log")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == STATUS[signal.SIGHUP], errors
    assert list(tmp_path.iterdir()) == []


def test_a_closed_terminal_ends_a_service_in_order(tmp_path: Path) -> None:
    config = tmp_path / "flyball.yaml"
    config.write_text("dashboard: {port: 0}\n")
    folder = tmp_path / "temporary"
    folder.mkdir()
    with started(["dashboard"], folder, "--config", str(config), "--bootstrap", "127.0.0.1:1") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("dashboard: ")
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert list(folder.iterdir()) == []


def started(arguments: list[str], folder: Path, *more: str) -> subprocess.Popen[str]:
    """A command whose temporary files lie in a folder."""
    return subprocess.Popen(
        command(*arguments, *more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**environment(), "TMPDIR": os.fspath(folder)},
    )


def test_while_a_worker_compiles_its_models(embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    """SIGINT has the same handler."""
    number = signal.SIGTERM
    address = embedded_broker({name: 1 for name in TOPICS}).bootstrap
    group = Consumer(consumer_settings(address, group=Config().worker.app, client_id="test"))
    try:
        group.commit(offsets=[TopicPartition(TELEMETRY.name, 0, 1)], asynchronous=False)
        arguments = ["worker", "--embedded", "--bootstrap", address]
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED_COMPILER, str(int(number)), *arguments],
            capture_output=True, text=True, timeout=120, check=False,
            env={**environment(), "TMPDIR": os.fspath(tmp_path)},
        )  # fmt: skip
        (committed,) = group.committed([TopicPartition(TELEMETRY.name, 0)], 10.0)
    finally:
        group.close()
    assert done.returncode == STATUS[number], done.stderr
    assert "compiling" in done.stderr
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr
    assert committed.offset == 1, "the next worker goes on where the last one was"
    assert list(tmp_path.iterdir()) == []


def test_while_a_library_in_c_runs_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a library turns the signal's exception into a SystemError, as librdkafka's client does now and then."""

    def call(**_: object) -> None:
        raise SystemError("returned a result with an exception set") from Ended(signal.SIGTERM)

    monkeypatch.setattr(flyball, "main", call)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == STATUS[signal.SIGTERM]
