"""Driver ``webhook``, on the server of the example, which runs real processes, and on one that breaks each rule."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.actuators.carry_out import ended as end_of, submitted
from tests.actuators.loop import config_for, ended, outcomes, publish, running, without_effect
from tests.actuators.platform_server import PlatformServer
from tests.actuators.rows import observed_row
from tests.actuators.samples import CELL, migrate, preempt, scale, spec
from tests.brokers.server import free_ports
from tests.cli.shell import check_refused, flyball
from tests.conftest import ROOT
from tests.faults.testbed import wait_until

from flyball_actuators.platforms import Done, Handle, PlatformError, Rejected, WebhookPlatform, make_platforms
from flyball_actuators.platforms.calls import Call, StoppedError, recording_calls
from flyball_actuators.platforms.webhook_trial import trial
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import SubjectState
from flyball_contracts.webhook import Submission

EXAMPLE = ROOT / "infra" / "examples" / "webhook_server.py"
SECRET, VARIABLE = "a-secret-of-the-edge", "FLYBALL_TEST_EDGE_TOKEN"
DEADLINE_S = 90.0


class Edge:
    """The example's server; each process of its workload leaves its number in a folder."""

    def __init__(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        self._folder = folder
        (folder / "pids").mkdir()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        script = f"echo > {self._folder}/pids/$$; exec sleep 600"
        arguments = ["--cell", CELL, "--workload", "chat", "--port", str(self._port), "--token-env", VARIABLE]
        arguments += ["--memory", str(self._folder / "operations.json"), "--", "sh", "-c", script]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(EXAMPLE), *arguments], env={**os.environ, VARIABLE: SECRET}, stderr=log
            )
        wait_until(lambda: self.alive() > 0, "the server and its first process", DEADLINE_S)

    def end(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(DEADLINE_S)
        wait_until(lambda: self.alive() == 0, "the end of its processes", DEADLINE_S)

    def call(self, method: str, path: str, body: bytes | None) -> tuple[int, Any]:
        """Status and body of an answer."""
        headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def alive(self) -> int:
        """Processes of the workload, as the machine knows them."""
        return len(self.pids())

    def pids(self) -> set[str]:
        """Their process ids."""
        found = {pid.name: Path("/proc") / pid.name / "cmdline" for pid in (self._folder / "pids").iterdir()}
        return {pid for pid, path in found.items() if path.exists() and b"sleep" in path.read_bytes()}


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    server = Edge(tmp_path)
    server.start()
    yield server
    server.end()


def test_processes_follow_decisions_from_the_topic(
    edge: Edge, bootstrap: str, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    platform = PlatformConfig(cells=(CELL,), driver="webhook", url=edge.url, token_env=VARIABLE, poll_s=0.1)
    config = config_for(
        bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), platforms=(platform,),
        allow=("chat",), kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    now_ns, before = time.time_ns(), edge.pids()
    with running(without_effect(config), clock=time.time_ns):
        publish(bootstrap, spec(), scale("plan", before=1, after=4, time_ns=now_ns))
        wait_until(ended(bootstrap, 1), "the plan", DEADLINE_S)
    assert edge.pids() == before
    with running(config, clock=time.time_ns):
        publish(bootstrap, scale("more", before=1, after=4, time_ns=now_ns))
        wait_until(lambda: edge.alive() == 4, "four processes", DEADLINE_S)
        wait_until(ended(bootstrap, 2), "the final outcome", DEADLINE_S)
        victims = tuple(sorted(edge.pids())[:2])
        publish(bootstrap, preempt("less", before=4, after=2, victims=victims, time_ns=now_ns + 1))
        wait_until(lambda: edge.alive() == 2, "two processes", DEADLINE_S)
        assert not edge.pids() & set(victims)
        publish(bootstrap, migrate("away", time_ns=now_ns + 2))
        wait_until(ended(bootstrap, 4), "all final outcomes", DEADLINE_S)
    last = {o.decision: o for o in outcomes(bootstrap) if o.final}
    assert [(last[id_].status, last[id_].driver) for id_ in ("more", "less")] == [("done", "webhook")] * 2
    assert (last["away"].status, last["away"].code) == ("refused", "unsupported")
    assert last["away"].detail == "it starts and ends processes, and knows no Migrate"
    row = observed_row(bootstrap, "webhook")
    assert (row.verbs, row.victims, row.planned) == ({"Preempt": (1, 1), "Scale": (1, 1)}, (1, 1), 1)


def test_an_operation_is_known_after_a_restart_of_the_server(edge: Edge) -> None:
    platform = WebhookPlatform(edge.url, 5.0, token=SECRET)
    handle = submitted(platform, scale("more", before=1, after=3))
    assert isinstance(handle, Handle)
    assert isinstance(end_of(platform, handle), Done)
    edge.end()
    with pytest.raises(PlatformError, match="Connection refused"):
        platform.poll(handle)
    edge.start()
    wait_until(lambda: edge.alive() == 3, "as many processes as before", DEADLINE_S)
    assert platform.find(scale("more", before=1, after=3), None) == handle
    again = platform.submit(scale("more", before=1, after=3), SubjectState(version="0"), dry_run=False)
    assert again == handle
    refused = submitted(platform, preempt("less", before=3, after=2, victims=("none",)))
    assert isinstance(refused, Rejected)
    assert (refused.code, refused.detail) == ("invalid", "no process none runs; name others or none")
    assert edge.alive() == 3


def test_who_is_named_ends_although_another_has_ended_meanwhile(edge: Edge) -> None:
    platform = WebhookPlatform(edge.url, 5.0, token=SECRET)
    more = submitted(platform, scale("more", before=1, after=4))
    assert isinstance(more, Handle)
    assert isinstance(end_of(platform, more), Done)
    wait_until(lambda: edge.alive() == 4, "four processes", DEADLINE_S)
    named, crashed, *_ = edge.pids()
    decision = preempt("less", before=4, after=3, victims=(named,))
    observed = platform.observe(decision)
    assert not isinstance(observed, Rejected), observed
    os.kill(int(crashed), signal.SIGKILL)
    less = platform.submit(decision, observed, dry_run=False)
    assert isinstance(less, Handle)
    done = end_of(platform, less)
    assert isinstance(done, Done)
    assert done.observed.nodes[named] == ""
    wait_until(lambda: edge.alive() == 3, "three processes", DEADLINE_S)
    assert named not in edge.pids()


def test_the_example_answers_as_the_document_says(edge: Edge) -> None:
    document = yaml.safe_load((ROOT / "infra" / "webhook.yaml").read_text())

    def fits(schema: dict[str, Any], found: Any) -> None:
        validator: Any = Draft202012Validator({**schema, "components": document["components"]})
        validator.validate(found)

    decision = scale("more", before=1, after=2)
    posted = ("POST", "/v1/operations", "/v1/operations")
    statuses: list[int] = []
    for method, path, of, submission in (
        ("GET", "/v1/cell", "/v1/cell", None),
        ("GET", "/v1/workloads/chat", "/v1/workloads/{workload}", None),
        ("GET", "/v1/workloads/other", "/v1/workloads/{workload}", None),
        ("GET", "/v1/operations/more", "/v1/operations/{id}", None),
        (*posted, Submission(decision=decision, version="0", dry_run=True)),
        (*posted, Submission(decision=decision, version="7")),
        (*posted, Submission(decision=migrate())),
        (*posted, Submission(decision=decision, version="0")),
        (*posted, Submission(decision=decision, version="0")),
        ("GET", "/v1/operations/more", "/v1/operations/{id}", None),
    ):
        described = document["paths"][of][method.lower()]
        body = None if submission is None else msgspec.json.encode(submission)
        if body is not None:
            fits(described["requestBody"]["content"]["application/json"]["schema"], msgspec.json.decode(body))
        status, answer = edge.call(method, path, body)
        statuses.append(status)
        fits(described["responses"][str(status)]["content"]["application/json"]["schema"], answer)
    assert statuses == [200, 200, 404, 404, 200, 409, 422, 202, 200, 200]


def test_the_command_finds_the_example_in_order(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    done = flyball("webhook", edge.url, "--workload", "chat", "--token-env", VARIABLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == 8
    assert edge.alive() == 1
    monkeypatch.setenv(VARIABLE, "another")
    done = flyball("webhook", edge.url, "--workload", "chat", "--token-env", VARIABLE)
    assert done.returncode == 1
    assert "HTTP 401: it does not take the token; check token_env" in " ".join(done.stdout.split())


class Sloppy(PlatformServer):
    """Breaks one rule after the other."""

    breaks = ""

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        if self.breaks == "unknown" and "no-such" in path:
            return 200, SubjectState(replicas=1, version="1")
        if self.breaks == "bare" and path.startswith("/v1/workloads/no-such"):
            return 404, {}
        if self.breaks == "never" and path.startswith("/v1/operations/trial-"):
            return 200, next(iter(self.operations.values()))
        if self.breaks in ("plan", "any") and method == "POST":
            body = body.replace(b'"dry_run":true', b'"dry_run":false') if self.breaks == "plan" else body
            body = body.replace(b'-not"', b'"') if self.breaks == "any" else body
        if self.breaks == "version" and path == "/v1/workloads/chat":
            return 200, SubjectState(replicas=4)
        return super()._answer(method, path, body)


@pytest.mark.parametrize(
    ("breaks", "rule", "found"),
    [
        ("unknown", "it knows what it does not run", "it shows a state of a workload that does not exist"),
        ("bare", "it knows what it does not run", "the answer is no Rejection"),
        ("plan", "a plan changes nothing", "after the plan it shows"),
        ("any", "a Scale under another version", "it plans under any version"),
        ("version", "it shows the workload", "version is missing"),
        ("", "", ""),
    ],
)
def test_a_broken_rule_is_named(breaks: str, rule: str, found: str) -> None:
    server = Sloppy()
    server.has("chat", 4)
    server.breaks = breaks
    try:
        broken = [one for one in trial(WebhookPlatform(server.url, 5.0), "chat") if not one.kept]
    finally:
        server.close()
    assert [one.rule.startswith(rule) for one in broken] == ([True] if breaks else []), broken
    assert all(found in one.found for one in broken)


def test_a_server_that_needs_no_token_is_named() -> None:
    server = PlatformServer()
    server.has("chat", 4)
    try:
        rules = trial(WebhookPlatform(server.url, 5.0, token=SECRET), "chat", WebhookPlatform(server.url, 5.0))
        assert [one.found for one in rules if not one.kept] == ["it takes commands without the token"]
    finally:
        server.close()


@pytest.mark.parametrize("dry_run", [True, False])
def test_nothing_is_sent_while_changes_are_stopped(dry_run: bool) -> None:
    platform, calls = WebhookPlatform("http://127.0.0.1:1", 1.0), list[Call]()
    expected = PlatformError if dry_run else StoppedError  # nothing listens there
    with recording_calls(calls.append, lambda: "ann stopped everything"), pytest.raises(expected):
        platform.submit(scale(), SubjectState(version="1"), dry_run=dry_run)
    assert len(calls) == dry_run


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"url": ""}, "url: '' is not the address of an HTTP server"),
        ({"url": "http://[x"}, "is not the address of an HTTP server"),
        (
            {"url": "http://edge.example"},
            "url: http://edge.example: commands and credentials leave this machine over TLS alone",
        ),
        ({"url": "https://edge.example"}, "token_env: none is named"),
        ({"url": "https://edge.example", "token_env": "NOT_SET"}, "token_env: the environment variable NOT_SET is not"),
        ({"url": "http://127.0.0.1:1", "token_env": "NOT_SET"}, "token_env: the environment variable NOT_SET is not"),
    ],
)
def test_settings_that_cannot_work_are_named(entry: dict[str, str], said: str) -> None:
    config = ActuatorConfig(platforms=(PlatformConfig(driver="webhook", **entry),))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^actuator\.platforms\[0\]\.") as refused:
        make_platforms(config, lambda cell, workload: {})
    assert said in str(refused.value)


def test_the_command_refuses_a_server_without_tls() -> None:
    done = flyball("webhook", "http://edge.example", "--workload", "chat")
    check_refused(done.returncode, done.stderr, "commands and credentials leave this machine over TLS alone; use https")
