"""The platform's HTTP interface: what it answers, to good requests and bad ones."""

import http.client
import socket
import urllib.parse
from collections.abc import Generator
from typing import Any

import msgspec
import pytest
from tests.simulator.orders import CONFIG, START_NS, migrate, scale

from flyball_contracts.errors import ConfigError
from flyball_contracts.records import SubjectState
from flyball_contracts.simulated import CellState, NodeState, Operation, Rejection, Submission
from flyball_simulator import Fleet
from flyball_simulator.service.platform import Platform
from flyball_simulator.service.server import MOST_BYTES, bound, serving


class Client:
    """A client of a platform that ticks when it is told to."""

    def __init__(self, platform: Platform, url: str) -> None:
        self.platform = platform
        self.where = urllib.parse.urlsplit(url).netloc
        self._next = 0

    def tick(self, count: int) -> None:
        for _ in range(count):
            self.platform.tick(self._next)
            self._next += 1

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.where, timeout=10)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            assert answer.getheader("Content-Type") == "application/json"
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path: str, kind: Any) -> Any:
        status, body = self.request("GET", path)
        assert status == 200, body
        return msgspec.json.decode(body, type=kind)

    def post(self, submission: Submission) -> tuple[int, bytes]:
        return self.request("POST", "/v1/operations", msgspec.json.encode(submission))

    def refused(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        status, answer = self.request(method, path, body, **headers)
        return status, msgspec.json.decode(answer, type=Rejection).detail


@pytest.fixture
def client() -> Generator[Client]:
    platform = Platform(Fleet(CONFIG, START_NS), 1.0)
    with bound(platform, "127.0.0.1:0") as server, serving(server) as url:
        yield Client(platform, url)


def test_what_is_there_can_be_seen(client: Client) -> None:
    client.tick(3)
    cell = client.get("/v1/cell", CellState)
    assert (cell.cell, cell.now_ns, cell.speed, cell.nodes) == ("fleet", START_NS + 2 * 10**9, 1.0, 24)
    assert "chat-api" in cell.workloads
    chat = client.get("/v1/workloads/chat-api", SubjectState)
    assert (chat.replicas, chat.ready, len(chat.nodes)) == (12, 12, 12)
    assert client.get("/v1/nodes/gpu-a-001", NodeState) == NodeState(node="gpu-a-001", schedulable=True)
    assert client.get("/v1/operations", list[Operation]) == []


def test_an_operation_runs_until_its_effect_is_there(client: Client) -> None:
    client.tick(1)
    version = client.get("/v1/workloads/embed-api", SubjectState).version
    submission = Submission(decision=scale("embed-api", 8, id="more/of it"), version=version)
    planned = client.post(msgspec.structs.replace(submission, dry_run=True))
    assert planned[0] == 200
    assert client.get("/v1/operations", list[Operation]) == []
    assert [client.post(submission)[0], client.post(submission)[0]] == [202, 200]
    client.tick(20)
    assert client.get("/v1/operations/more%2Fof%20it", Operation).status == "running"
    client.tick(20)
    done = client.get("/v1/operations/more%2Fof%20it", Operation)
    assert (done.status, done.submissions, done.effects, done.observed.ready) == ("done", 2, 1, 8)
    assert client.get("/v1/operations", list[Operation]) == [done]
    stale = msgspec.structs.replace(submission, decision=scale("embed-api", 3))
    assert client.post(stale)[0] == 409


def test_what_it_does_not_do_it_says(client: Client) -> None:
    assert client.refused("GET", "/v1/workloads/nobody") == (404, "workload 'nobody' does not run in cell fleet")
    assert client.refused("GET", "/v1/nodes/nowhere")[0] == 404
    assert client.refused("GET", "/v1/operations/none")[0] == 404
    assert client.refused("GET", "/v2")[0] == 404
    assert client.refused("POST", "/v1/cell", b"{}")[0] == 404
    assert client.refused("DELETE", "/v1/cell")[0] == 501
    for decision, status in ((scale("nobody", 1), 404), (scale("chat-api", 99), 422), (migrate("chat-api", "x"), 422)):
        code, answer = client.post(Submission(decision=decision))
        assert (code, bool(msgspec.json.decode(answer, type=Rejection).detail)) == (status, True)


BAD = [b"", b"{", b"\xff\xfe", b"[1]", b'{"decision":{"type":"Grow"}}', b"[" * 100_000, b'{"decision":null}', b"1e999"]


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_a_body_that_is_no_submission_is_one_clear_error(client: Client, body: bytes) -> None:
    status, detail = client.refused("POST", "/v1/operations", body)
    assert status == 400
    assert detail.startswith("the body is not a Submission: ")
    assert client.get("/v1/operations", list[Operation]) == []


def test_a_body_is_bounded(client: Client) -> None:
    assert client.refused("POST", "/v1/operations", b" " * (MOST_BYTES + 1))[0] == 413
    length = {"Content-Length": "9" * 5000}
    assert client.refused("POST", "/v1/operations", None, **length)[0] == 413
    length = {"Content-Length": "-1"}
    assert client.refused("POST", "/v1/operations", None, **length)[0] == 411


def test_noise_on_the_line_ends_nothing(client: Client) -> None:
    host, port = client.where.split(":")
    for noise in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/operations HTTP/1.1\r\nContent-Length: 50\r\n\r\n{",
    ):
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(noise)
    client.tick(1)
    assert client.get("/v1/cell", CellState).nodes == 24


@pytest.mark.parametrize("listen", ["127.0.0.1:x", "127.0.0.1:99999999", "nowhere", "192.0.2.1:80"])
def test_an_address_that_cannot_be_is_refused(listen: str) -> None:
    with (
        pytest.raises(ConfigError, match=r"--listen .*give a free HOST:PORT"),
        bound(Platform(Fleet(CONFIG, START_NS), 1.0), listen),
    ):
        pass
