"""The server: its health, its address, and that it ends and leaves nothing behind."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.brokers.embedded import EmbeddedBroker
from tests.dashboard.scenes import scene
from tests.dashboard.serve import ROOT, serving

from flyball_contracts.config import Config, DashboardConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.topics import TOPICS
from flyball_streams.dashboard.run import run_dashboard


def fetch(url: str) -> str:
    request = urllib.request.Request(url, headers={"Cookie": "flyball_theme=dark"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read()).decode()


def test_health_and_a_page_without_foreign_addresses(
    embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    broker = embedded_broker({topic.name: 1 for topic in TOPICS.values()})
    items = scene.scene(scene.Fleet(nodes=2))
    scene.publish(broker.bootstrap, [scene.message_of(item) for item in items])
    with serving(broker.bootstrap, tmp_path / "work") as url:
        end = time.monotonic() + 30
        health: dict[str, Any] = {}
        while health.get("applied") != len(items):
            assert time.monotonic() < end, health
            health = json.loads(fetch(f"{url}healthz"))
        assert health["status"] == "ok"
        assert health["undecodable"] == 0
        page = fetch(url)
        links: list[str] = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
        foreign = [link for link in links if "//" in link and not link.startswith("data:")]
        assert foreign == []


def test_without_a_broker_it_serves_and_reports_it(tmp_path: Path) -> None:
    with serving("127.0.0.1:1", tmp_path / "work") as url:
        health = json.loads(fetch(f"{url}healthz"))
        assert health["status"] == "degraded"
        assert health["bootstrap"] == "127.0.0.1:1"


BROKEN_READER = """
import threading
from flyball_contracts.config import Config, DashboardConfig
from flyball_streams.dashboard import run

def fail(feed, stop):
    raise ValueError("nobody foresaw this")

run.Feed.run = fail
run.run_dashboard(Config(dashboard=DashboardConfig(port=0)), stop=threading.Event())
"""


def test_a_page_whose_reader_has_failed_is_not_served_on(tmp_path: Path) -> None:
    as_users = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    paths = os.pathsep.join(str(ROOT / part) for part in ("streams", "models", "contracts"))
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_READER],
        cwd=tmp_path, env={**as_users, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "nobody foresaw this" in done.stderr
    assert "the dashboard's reader ended on its own" in done.stderr


def test_a_taken_port_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = Config(dashboard=DashboardConfig(port=port))
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*dashboard\.port"):
            run_dashboard(config, stop=threading.Event())
