"""The README's commands for a broker and a recording, each line as it stands there, one after the other."""

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.actuators.ledger.test_audit import opened
from tests.actuators.ledger.test_ledger import outcome
from tests.actuators.loop import publish
from tests.actuators.samples import scale
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.decisions.test_incidents import incident
from tests.cli.decisions.test_waste import waste
from tests.cli.shell import environment
from tests.readme.blocks import lines, placed

from flyball_actuators.guard import Verdict
from flyball_cli.main import flyball
from flyball_contracts.topics import TOPICS

ON_A_BROKER = ("workloads", "incidents", "stop", "resume", "approve", "controls", "audit")
TRAIL = "/var/lib/flyball/audit"


def run(line: str, bootstrap: str) -> str:
    """Run a line for the README's reader: on a broker of its own, briefly, and without a terminal."""
    words = shlex.split(line.replace("--for 3600", "--for 5"), comments=True)[1:]
    words, target = (words[:-2], words[-1]) if ">" in words else (words, "")
    words = [bootstrap if word == "kafka-1:9092" else word for word in words]
    if words[0] in ON_A_BROKER and not target:
        words += [] if "--bootstrap" in words else ["--bootstrap", bootstrap]
        words += ["--yes"] if {"apply", "remove", "approve"} & set(words) else []
    done = CliRunner().invoke(flyball, words, env={"COLUMNS": "160"})
    differs = words[0] == "diff" and done.exit_code == 1
    assert done.exit_code == 0 or differs, f"{line}: {done.exception!r} {done.output}"
    if target:
        Path(target).write_text(done.stdout)
    return done.output


@pytest.fixture
def bootstrap(embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A broker with the topics, in whose folder the commands run."""
    monkeypatch.chdir(tmp_path)
    return embedded_broker({topic.name: topic.partitions for topic in TOPICS.values()}).bootstrap


def test_workloads_are_declared_listed_shown_and_removed(bootstrap: str) -> None:
    _, applied, listed, shown, removed = (run(line, bootstrap) for line in lines("flyball workloads example"))
    assert "3 workloads sent" in applied
    assert "1 workload in 1 cell" in listed
    assert shown.startswith("workload: chat\n")
    assert "chat (removed)" in removed


@pytest.mark.integration  # it needs no server, but more time than a unit test may take
def test_a_recording_is_made_replayed_compared_and_asked(bootstrap: str, recording: Path) -> None:
    Path("candidate.yaml").write_text("worker:\n  sizing: {policy: forecast_band}\n")
    sent = run(f"flyball replay {recording} --to-broker --rebase --bootstrap kafka-1:9092", bootstrap)
    publish(bootstrap, scale("5f3c9a00", time_ns=time.time_ns()))
    made, replayed, other, compared = (run(line, bootstrap) for line in lines("flyball record"))
    assert int(made.split()[0]) == int(sent.split()[0]) + 1, "each message that was sent was recorded"
    assert "Scale" in replayed
    assert "Scale" in other
    assert "fleet/chat-api" in compared
    run(lines("flyball waste")[1], bootstrap)
    tested, *_ = lines("flyball policy test")
    assert "rule" in run(tested, bootstrap)


def test_controls_and_incidents_are_answered(bootstrap: str) -> None:
    decision = scale("5f3c9a00", time_ns=time.time_ns())
    publish(bootstrap, decision, incident("3f2a00112233"))
    _, stopped, approved, standing = lines("flyball policy test")
    assert "flyball resume --cell 'eu-*'" in run(stopped, bootstrap)
    assert "demand rises" in run(approved, bootstrap)
    shown = run(standing, bootstrap)
    assert "cooling fails" in shown
    assert "5f3c9a00" in shown
    ended = run(re.findall("flyball resume[^\n]*", stopped)[0], bootstrap)
    assert "'eu-*' go on" in ended
    *answers, _ = lines("flyball incidents list")
    said = [run(line, bootstrap) for line in answers]
    assert "3f2a" in said[0]
    assert "GPU 3 of node-1" in said[1]
    assert "rack-7-*" in run("flyball incidents silences", bootstrap)


def test_a_trail_is_verified_and_one_decision_shown(bootstrap: str) -> None:
    decision = scale("5f3c9a00")
    with opened(Path("audit")) as trail:
        trail.received(decision, 0, 0, "")
        trail.judged(decision, "observed", Verdict("accepted", "", ""), ("rate", "blast_radius"))
        trail.published(outcome(decision.id))
    verify, show = lines("flyball audit verify")
    assert "4 entries about 1 decisions" in run(placed(verify, {TRAIL: "audit"}), bootstrap)
    Path("flyball.yaml").write_text("actuator: {audit: audit}\n")
    assert "Scale of cell-a/chat" in run(f"{show.partition(' #')[0]} --config flyball.yaml", bootstrap)


def test_what_workers_found_wasted_is_read_from_the_broker(bootstrap: str) -> None:
    publish(bootstrap, waste("fleet/chat-api", int(time.time() // 3600) - 2, 3.0, 12.0))
    assert "fleet/chat-api" in run(lines("flyball waste")[0], bootstrap)


def test_a_server_behind_driver_webhook_keeps_to_the_contract(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    example, secret, serve, tried = lines("flyball config example webhook_server.py")
    waited = f"for i in $(seq 100); do (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && break; sleep 0.1; done"
    script = "\n".join([example, secret, serve, "trap 'kill $!' EXIT", waited, tried]).replace("8443", str(port))
    environ = environment()
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok" in done.stdout
    assert "\nno " not in done.stdout
