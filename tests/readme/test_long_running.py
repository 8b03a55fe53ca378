"""The README's services, each started as it stands there, seen to work, and ended by Ctrl-C."""

import json
import re
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.actuators.loop import publish, read_keyed
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import free_ports
from tests.cli.decisions.test_incidents import incident
from tests.readme.blocks import README, Command, lines, placed, run, started
from tests.streams.notify.receivers import Receiver, receiving

from flyball_contracts.topics import SIGNALS, TOPICS

pytestmark = pytest.mark.integration
PARAGRAPH = README.partition("On a Kafka of your own:")[2].partition("\n\n")[0].replace("\n", " ")
OF_YOUR_OWN = re.findall(r"`(flyball [^`]+)`", PARAGRAPH)


@pytest.fixture
def bootstrap(embedded_broker: Callable[..., EmbeddedBroker]) -> str:
    return embedded_broker({topic.name: topic.partitions for topic in TOPICS.values()}).bootstrap


def healthy(folder: Path, name: str) -> bool:
    (probe,) = (line for line in OF_YOUR_OWN if line.startswith("flyball health"))
    return run(placed(probe, {"FILE": f"{name}.health"}), folder, status=None).returncode == 0


@pytest.mark.timeout(900)
def test_what_runs_on_a_kafka_of_your_own(bootstrap: str, tmp_path: Path) -> None:
    topics, *services, _ = OF_YOUR_OWN
    assert [service.split()[1] for service in services] == ["worker", "actuate", "dashboard"]
    (port,) = free_ports(1)
    (tmp_path / "flyball.yaml").write_text(f"kafka: {{bootstrap: '{bootstrap}'}}\ndashboard: {{port: {port}}}\n")
    run(f"{topics} --config flyball.yaml", tmp_path)
    agent = placed(lines("pip install 'flyball[agent]'")[-1], {"kafka-1:9092": bootstrap})
    recorded = placed(lines("flyball record")[0], {"kafka-1:9092": bootstrap})
    with ExitStack() as stack:
        running: dict[str, Command] = {}
        for line in (*(f"{service} --config flyball.yaml" for service in services), agent, recorded):
            name = line.split()[1]
            more = "" if name == "record" else f" --health-file {name}.health"
            running[name] = stack.enter_context(started(line + more, tmp_path))
        for name, command in running.items():
            if name != "record":
                command.until(partial(healthy, tmp_path, name), f"{name} is healthy")
        page = f"http://127.0.0.1:{port}/healthz"
        assert urllib.request.urlopen(page, timeout=30).status == 200
        for name, command in running.items():
            assert command.interrupt() == 0, f"{name}: {command.output}"
            assert "Traceback" not in command.output
            assert not re.search(r"^error:", command.output, re.M)
        assert "messages delivered" in running["agent"].output
        counted = re.search(r"^(\d+) messages in", running["record"].output, re.M)
        assert counted is not None, running["record"].output
        assert int(counted[1]) > 0
    assert (tmp_path / "monday.parquet").exists()


def test_feeds_are_asked_once_and_published(bootstrap: str, tmp_path: Path) -> None:
    hours = (datetime.now(UTC).replace(minute=0) + timedelta(hours=i) for i in range(24))
    (tmp_path / "de.csv").write_text("time,value\n" + "".join(f"{hour.isoformat()},300\n" for hour in hours))
    (tmp_path / "flyball.yaml").write_text(
        f"kafka: {{bootstrap: '{bootstrap}'}}\nfeeds: [{{source: file, zone: DE, path: {tmp_path}/de.csv}}]\n"
    )
    once, forever = lines("flyball feed")
    assert "DE" in run(once, tmp_path).stdout
    with started(forever, tmp_path) as feed:
        feed.until(lambda: bool(read_keyed(bootstrap, SIGNALS.name)), "a curve is published")
        assert feed.interrupt() == 0
        assert "1 curves sent, 0 requests failed" in feed.output


def test_incidents_are_notified(bootstrap: str, tmp_path: Path) -> None:
    publish(bootstrap, incident("3f2a00112233"))
    with receiving(Receiver()) as alertmanager, receiving(Receiver()) as pager:
        places = {"http://alertmanager:9093": alertmanager.url, "https://pager.example": pager.url}
        line = placed(lines("flyball incidents list")[-1], places)
        with started(f"{line} --bootstrap {bootstrap}", tmp_path) as notifier:
            notifier.until(lambda: bool(alertmanager.bodies) and bool(pager.bodies), "both receivers have it")
            assert notifier.interrupt() == 0
    assert alertmanager.wrong == []
    assert "3f2a00112233" in json.dumps(alertmanager.bodies)
    assert "3f2a00112233" in json.dumps(pager.bodies)


def test_a_worker_starts_from_a_recording(bootstrap: str, recording: Path, tmp_path: Path) -> None:
    (tmp_path / "flyball.yaml").write_text(f"kafka: {{bootstrap: '{bootstrap}'}}\n")
    (tmp_path / "monday.parquet").symlink_to(recording)
    (line,) = (line.partition(" #")[0] for line in lines("flyball worker --config flyball.yaml --history"))
    with started(f"{line} --health-file worker.health", tmp_path) as worker:
        worker.until(partial(healthy, tmp_path, "worker"), "the worker is healthy")
        assert worker.interrupt() == 0
