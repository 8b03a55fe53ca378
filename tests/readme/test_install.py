"""The agent, installed from this checkout into an empty environment by the README's lines, with all of its commands."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.loop import read_keyed
from tests.brokers.embedded import EmbeddedBroker
from tests.conftest import ROOT
from tests.readme.blocks import lines, placed, run, started

from flyball_contracts.topics import TELEMETRY, TOPICS

pytestmark = pytest.mark.integration


@pytest.mark.timeout(500)
def test_the_agent_is_installed_and_measures(embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    install, once, doctor, nvml, burn_in, agent = lines("pip install 'flyball[agent]'")
    (checkout,) = re.findall(r"from a checkout: (.*)$", install)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    path = f"{tmp_path / 'venv/bin'}:/usr/bin:/bin"
    run(f"cd {ROOT} && {checkout} -q -c constraints.txt", tmp_path, timeout_s=400, PATH=path)
    assert "system.memory.limit" in run(once, tmp_path, PATH=path).stdout
    assert "no broker answers" in run(doctor, tmp_path, PATH=path).stdout
    compared = run(nvml, tmp_path, status=None, PATH=path)  # one line where this machine has no driver
    assert compared.returncode in (0, 1) or re.fullmatch(r"error: NVML [^\n]*\n", compared.stderr), compared.stderr
    tried = run(burn_in, tmp_path, status=1, PATH=path)
    assert "pip install 'flyball[worker]'" in tried.stdout, "this environment has no jax"
    bootstrap = embedded_broker({topic.name: topic.partitions for topic in TOPICS.values()}).bootstrap
    with started(placed(agent, {"kafka-1:9092": bootstrap}), tmp_path, PATH=path) as running:
        running.until(lambda: len(read_keyed(bootstrap, TELEMETRY.name)) >= 3, "telemetry arrives")
        assert running.interrupt() == 0
        assert "messages delivered" in running.output
