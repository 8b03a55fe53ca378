import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.actuators.platform_server import PlatformServer, platform_server
from tests.actuators.samples import migrate, preempt, scale

from flyball_actuators.platforms import (
    Done,
    Failed,
    Handle,
    PlatformError,
    Rejected,
    Running,
    SimulatedPlatform,
    Superseded,
    WebhookPlatform,
)
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import SubjectState
from flyball_contracts.webhook import Cell


@pytest.fixture
def server() -> Iterator[PlatformServer]:
    with platform_server(chat=4) as running:
        yield running


@pytest.fixture
def platform(server: PlatformServer) -> SimulatedPlatform:
    return SimulatedPlatform(server.url, 2.0)


def seen(platform: SimulatedPlatform) -> SubjectState:
    observed = platform.observe(scale())
    assert isinstance(observed, SubjectState)
    return observed


def submitted(platform: SimulatedPlatform, **more: object) -> Handle:
    handle = platform.submit(scale(**more), seen(platform), dry_run=False)  # type: ignore[arg-type]
    assert isinstance(handle, Handle)
    return handle


def test_it_observes_the_workload_and_the_replicas_that_are_named(platform: SimulatedPlatform) -> None:
    assert platform.observe(scale()) == SubjectState(replicas=4, ready=4, version="1")
    moved = platform.observe(migrate(replica="chat-2"))
    assert isinstance(moved, SubjectState)
    assert moved.nodes == {"chat-2": "n1"}
    stopped = platform.observe(preempt(victims=("chat-0", "chat-9")))
    assert isinstance(stopped, SubjectState)
    assert stopped.nodes == {"chat-0": "n1"}


def test_what_it_does_not_know_is_refused_in_its_words(platform: SimulatedPlatform) -> None:
    assert platform.observe(scale(workload="gh/ost")) == Rejected(
        "unknown_target", "no /v1/workloads/gh/ost; ask for another"
    )
    other = platform.observe(scale(cell="cell-b"))
    assert isinstance(other, Rejected)
    assert other.code == "no_platform"
    assert "runs cell 'cell-a', not 'cell-b'" in other.detail


def test_an_operation_runs_until_the_effect_shows(server: PlatformServer, platform: SimulatedPlatform) -> None:
    server.held = True
    handle = submitted(platform)
    assert handle.operation == "d1"
    assert handle.expected.replicas == 6
    assert platform.poll(handle) == Running("on its way")
    server.finish("d1")
    done = platform.poll(handle)
    assert isinstance(done, Done)
    assert (done.observed.replicas, done.at_ns) == (6, server.now_ns)
    assert server.effects == ["d1"]


def test_a_newer_operation_supersedes(server: PlatformServer, platform: SimulatedPlatform) -> None:
    server.held = True
    first = submitted(platform)
    submitted(platform, id_="d2", after=8)
    ended = platform.poll(first)
    assert isinstance(ended, Superseded)
    assert ended.answer == "newer"


def test_another_version_is_a_conflict_and_changes_nothing(server: PlatformServer, platform: SimulatedPlatform) -> None:
    stale = SubjectState(version="0")
    refused = platform.submit(scale(), stale, dry_run=False)
    assert isinstance(refused, Rejected)
    assert refused.code == "conflict"
    impossible = platform.submit(migrate(replica="chat-9"), SubjectState(), dry_run=True)
    assert isinstance(impossible, Rejected)
    assert impossible.code == "invalid"
    assert server.effects == []


def test_dry_run_says_what_it_would_lead_to_and_changes_nothing(
    server: PlatformServer, platform: SimulatedPlatform
) -> None:
    planned = platform.submit(scale(), seen(platform), dry_run=True)
    assert isinstance(planned, Handle)
    assert (planned.operation, planned.expected.replicas) == ("", 6)
    assert server.log == []
    assert server.operations == {}
    assert server.workloads["chat"].replicas == 4


def test_an_answer_that_was_lost_is_found_by_the_decision(server: PlatformServer, platform: SimulatedPlatform) -> None:
    assert platform.find(scale(), None) is None
    server.deaf = 1
    with pytest.raises(PlatformError):
        platform.submit(scale(), seen(platform), dry_run=False)
    found = platform.find(scale(), None)
    assert isinstance(found, Handle)
    assert isinstance(platform.poll(found), Done)
    assert server.log == ["d1"]


def test_an_operation_that_it_forgot_has_an_unknown_outcome(platform: SimulatedPlatform) -> None:
    gone = platform.poll(Handle(operation="d9", expected=SubjectState()))
    assert isinstance(gone, Failed)
    assert gone.answer.startswith("unknown outcome: ")


def test_silence_ends_with_the_time_out(server: PlatformServer) -> None:
    server.answering.clear()
    with pytest.raises(PlatformError, match=r"GET http://127\.0\.0\.1:\d+/v1/cell: no answer in 0\.2 s"):
        SimulatedPlatform(server.url, 0.2).observe(scale())


def test_nobody_there_is_an_error_that_names_the_place() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(PlatformError, match="Connection refused"):
            SimulatedPlatform(url, 1.0).observe(scale())


@pytest.mark.parametrize(("status", "body"), [(500, b"oops"), (404, b"<html>"), (200, b"{}"), (200, b"\xff")])
def test_what_is_not_in_its_language_is_an_error(status: int, body: bytes) -> None:
    class OtherServer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), OtherServer) as other_server:
        threading.Thread(target=other_server.serve_forever, args=(0.02,), daemon=True).start()
        platform = SimulatedPlatform(f"http://127.0.0.1:{other_server.server_port}", 2.0)
        with pytest.raises(PlatformError, match=r"http://127\.0\.0\.1"):
            platform.observe(scale())
        with pytest.raises(PlatformError):
            platform.find(scale(), None)
        other_server.shutdown()


class Real(PlatformServer):
    """Obeys decisions as a simulated fleet does, and is none."""

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        status, answer = super()._answer(method, path, body)
        return status, Cell(cell=self.cell) if path == "/v1/cell" else answer


def test_a_server_that_is_no_simulated_fleet_is_not_commanded_as_one() -> None:
    server = Real()
    server.has("chat", 4)
    try:
        refused = SimulatedPlatform(server.url, 2.0).observe(scale())
        assert isinstance(WebhookPlatform(server.url, 2.0).observe(scale()), SubjectState)
    finally:
        server.close()
    assert isinstance(refused, Rejected)
    assert refused.code == "no_platform"
    assert "is no simulated fleet; set driver: webhook" in refused.detail


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://here", "http://", "http://here:x"])
def test_an_address_that_cannot_be_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match=r"actuator\.platforms\[0\]\.url: .*pass such as"):
        SimulatedPlatform(url, 1.0, "actuator.platforms[0]")
