"""The agent as a service: what it tells systemd, its endpoint, and signals."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.brokers.server import free_ports
from tests.collectors.agent.agent_tools import TOPICS, StartBroker

from flyball_cli.options import wait_beating
from flyball_collectors.agent.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end of the notify socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(30)
        yield end


def path_of(end: socket.socket) -> str:
    return str(end.getsockname())


def received(end: socket.socket) -> str:
    return end.recv(4096).decode()


def test_ready_once_and_then_a_beat_each_time(manager: socket.socket) -> None:
    notifier = Notifier(
        {"NOTIFY_SOCKET": path_of(manager), "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    )
    assert notifier.beat_s == 10
    notifier.beat()
    notifier.beat()
    notifier.stopping()
    assert [received(manager) for _ in range(4)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]


def test_without_a_descriptor_it_reports_later(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": path_of(manager)})

    def no_descriptor(*options: int) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as limit:
        limit.setattr(socket, "socket", no_descriptor)
        notifier.beat()
        notifier.stopping()
    notifier.beat()
    notifier.beat()
    notifier.stopping()
    assert [received(manager) for _ in range(2)] == ["READY=1", "STOPPING=1"]


def test_an_abstract_socket_and_a_watchdog_of_another_process(tmp_path: Path) -> None:
    name = f"flyball-test-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0{name}")
        end.settimeout(10)
        notifier = Notifier({"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"})
        notifier.beat()
        notifier.stopping()
        assert [received(end), received(end)] == ["READY=1", "STOPPING=1"]
    assert notifier.beat_s is None


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}, {"WATCHDOG_USEC": "x"}])
def test_without_a_manager_nothing_happens(environment: dict[str, str]) -> None:
    notifier = Notifier(environment)
    notifier.beat()
    notifier.stopping()
    assert notifier.beat_s is None


def test_a_long_wait_beats_and_ends_when_it_is_ordered_to() -> None:
    stop, beats = threading.Event(), 0

    def beat() -> None:
        nonlocal beats
        beats += 1
        if beats == 3:
            stop.set()

    assert wait_beating(1000.0, stop, beat, 0.001)
    assert beats == 3
    assert not wait_beating(0.0, threading.Event(), beat, 1.0)
    assert beats == 4


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answer(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_a_service_from_start_to_stop(embedded_broker: StartBroker, manager: socket.socket, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    text = f"""
kafka: {{bootstrap: "{embedded_broker(TOPICS).bootstrap}"}}
agent:
  node: n1
  period_s: 0.1
  state_dir: {tmp_path}/state
  disabled: [nvml, kmsg]
  provider: none
  export: {{metrics_listen: "127.0.0.1:{port}"}}
"""
    path = tmp_path / "flyball.yaml"
    path.write_text(text)
    environment = {**os.environ, "NOTIFY_SOCKET": path_of(manager), "WATCHDOG_USEC": "300000"}
    with subprocess.Popen(
        [sys.executable, "-m", "flyball_cli", "agent", "--config", str(path)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as agent:
        try:
            assert received(manager) == "READY=1"
            assert [received(manager) for _ in range(20)] == ["WATCHDOG=1"] * 20
            until(lambda: answer(f"http://127.0.0.1:{port}/health") == 200)
            os.kill(agent.pid, signal.SIGHUP)
            path.write_text(f"{text}  zone: DE\n")
            until(lambda: answer(f"http://127.0.0.1:{port}/metrics") == 200)
            for _ in range(30):
                assert received(manager) == "WATCHDOG=1"
            agent.terminate()
            reported = received(manager)
            while reported == "WATCHDOG=1":
                reported = received(manager)
            assert reported == "STOPPING=1"
            _, errors = agent.communicate(timeout=30)
        finally:
            agent.kill()
    assert agent.returncode == 0, errors
    assert errors.count("reloaded") >= 1
    assert "changed: agent.zone" in errors
