"""Each command does its work with the rights that `flyball topics --acls` prints, and no other."""

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from tests.actuators.loop import publish
from tests.actuators.samples import scale
from tests.rights.ground import END_S, Ground

from flyball_contracts.topics import OUTCOMES, STATE, TELEMETRY, Topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def first_of(ground: Ground, topic: Topic) -> Any:
    consumer = Consumer(
        {"bootstrap.servers": ground.broker.bootstrap, "group.id": "looker", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic.name])
        message = consumer.poll(END_S)
        assert message is not None, f"nothing came on {topic.name}"
        assert message.error() is None
        return message
    finally:
        consumer.close()


def ended(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    try:
        _, errors = process.communicate(timeout=END_S)
    finally:
        process.kill()
    assert "uthoriz" not in errors, errors
    return errors


def test_every_command_works_with_its_rights_alone(ground: Ground, tmp_path: Path) -> None:
    assert ground.run("administrator", "topics", "--create") == (0, [])
    file = tmp_path / "workloads.yaml"
    with file.open("w") as out:
        subprocess.run([sys.executable, "-m", "flyball_cli", "workloads", "example"], stdout=out, check=True)
    code, errors = ground.run("owner", "workloads", "apply", str(file), "--yes")
    assert code == 0, errors
    agent = ground.start("agent", "agent")
    first_of(ground, TELEMETRY)
    assert " 0 dropped" in ended(agent)
    code, errors = ground.run("operator", "stop", "--cell", "nowhere", "--reason", "a drill")
    assert code == 0, errors
    code, errors = ground.run("operator", "resume", "--cell", "nowhere")
    assert code == 0, errors
    code, errors = ground.run("operator", "controls")
    assert code == 0, errors
    code, errors = ground.run("remover", "nodes", "remove", "nobody", "--yes")
    assert (code, ["'nobody' has no inventory" in line for line in errors]) == (2, [True]), errors
    worker = ground.start("worker", "worker")
    first_of(ground, STATE)
    ended(worker)
    actuator = ground.start("actuator", "actuate")
    decision = scale("d1")
    publish(ground.broker.bootstrap, decision)
    first_of(ground, OUTCOMES)
    ended(actuator)
    code, errors = ground.run("recorder", "record", str(tmp_path / "all.parquet"), "--for", "2")
    assert code == 0, errors
    dashboard = ground.start("dashboard", "dashboard")
    assert dashboard.stdout is not None
    url = dashboard.stdout.readline().removeprefix("dashboard: ").strip()
    health = ""
    for _ in range(100):
        health = urllib.request.urlopen(f"{url}healthz", timeout=END_S).read().decode()
        if '"connected":true' in health:
            break
    assert '"connected":true' in health
    ended(dashboard)
