"""The agent's unit is as closed as an observer can be, alone and with each of its drop-ins."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from flyball_contracts.config import KafkaConfig

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "systemd"
UNIT = FOLDER / "flyball-agent.service"
DROP_INS = sorted(FOLDER.glob("*.conf"))
MOST_EXPOSURE = 2.0  # of 10; systemd calls up to 2 "OK", the best it gives a service that has the network


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _service() -> dict[str, str]:
    unit = _Unit(strict=False, delimiters=("=",))
    unit.read(UNIT)
    return dict(unit["Service"])


def _lines(key: str) -> list[str]:
    found = (line.partition("=") for line in UNIT.read_text().splitlines())
    return [value for name, _, value in found if name == key]


def _tool() -> str:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze on this machine; it comes with systemd")
    return tool


def test_runs_the_agent_with_a_health_file_it_may_write() -> None:
    service = _service()
    command = service["ExecStart"].split()
    assert "agent" in command
    health = command[command.index("--health-file") + 1]
    assert health.startswith(f"/run/{service['RuntimeDirectory']}/")


def test_a_reload_tells_the_agent() -> None:
    service = _service()
    assert _lines("ExecReload") == ["/usr/bin/kill -HUP $MAINPID"]
    assert service["Environment"] == "XDG_STATE_HOME=/var/lib"
    assert service["StateDirectory"] == "flyball"


def test_a_password_is_where_systemd_puts_it() -> None:
    text = (FOLDER / "kafka-password.conf").read_text()
    (named,) = [line.partition("sasl.password: ")[2] for line in text.splitlines() if "sasl.password" in line]
    (loaded,) = [line.partition("LoadCredential=")[2] for line in text.splitlines() if line.startswith("Load")]
    assert named == f"file:/run/credentials/{UNIT.name}/{loaded.partition(':')[0]}"
    KafkaConfig(client={"sasl.password": named})


def test_the_agent_is_watched() -> None:
    service = _service()
    assert (service["Type"], service["NotifyAccess"], service["Restart"]) == ("notify", "main", "always")
    assert 30 <= int(service["WatchdogSec"]) <= 120
    assert "AF_UNIX" in service["RestrictAddressFamilies"]


def test_is_bounded_and_sees_the_gpus() -> None:
    service = _service()
    assert {"MemoryMax", "CPUQuota", "TasksMax"} <= set(service)
    assert service["DynamicUser"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["DevicePolicy"] == "closed"
    text = UNIT.read_text()
    assert "DeviceAllow=char-nvidia rw" in text
    assert "PrivateDevices=yes" not in text


@pytest.mark.parametrize("drop_in", [None, *DROP_INS], ids=lambda path: path.name if path else "alone")
def test_exposure_is_low(drop_in: Path | None, tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text() + (drop_in.read_text() if drop_in else ""))
    done = subprocess.run(
        [_tool(), "security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSURE * 10:.0f}", unit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    text = UNIT.read_text().replace("/opt/flyball/bin/python", "/bin/true")
    unit.write_text(text + "".join(drop_in.read_text() for drop_in in DROP_INS))
    done = subprocess.run(
        [_tool(), "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert not ours
