"""The agent's unit is as closed as an observer can be."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "infra" / "systemd" / "flyball-agent.service"
MOST_EXPOSURE = 2.0  # of 10; systemd calls up to 2 "OK", the best it gives a service that has the network


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _service() -> dict[str, str]:
    unit = _Unit(strict=False, delimiters=("=",))
    unit.read(UNIT)
    return dict(unit["Service"])


def test_runs_the_agent_with_a_health_file_it_may_write() -> None:
    service = _service()
    command = service["ExecStart"].split()
    assert command[1] == "agent"
    health = command[command.index("--health-file") + 1]
    assert health.startswith(f"/run/{service['RuntimeDirectory']}/")


def test_is_bounded_and_sees_the_gpus() -> None:
    service = _service()
    assert {"MemoryMax", "CPUQuota", "TasksMax"} <= set(service)
    assert service["DynamicUser"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["DevicePolicy"] == "closed"
    text = UNIT.read_text()
    assert "DeviceAllow=char-nvidia rw" in text
    assert "PrivateDevices=yes" not in text


def test_exposure_is_low() -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze on this machine; it comes with systemd")
    done = subprocess.run(
        [tool, "security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSURE * 10:.0f}", UNIT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
