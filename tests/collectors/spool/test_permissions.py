"""A state folder of another user: the agent and the doctor say so, and the agent keeps what memory holds."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

OTHER = 65534
AS_OTHER = f"""
import os, sys
from pathlib import Path
from flyball_collectors.agent.delivery.spooling import open_spool
from flyball_collectors.agent.diagnosis.doctor import explain
from flyball_collectors.parameters import AgentParameters
from flyball_contracts.config import Config

agent = AgentParameters(state_dir=sys.argv[1], node="n", disabled=("nvml", "host", "kmsg", "attribution"))
if os.getuid() == 0:
    os.setuid({OTHER})
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others may enter, as those of pytest are not; it is writable again in the end."""
    with TemporaryDirectory() as made:
        path = Path(made)
        path.chmod(0o755)
        (path / "flyball" / "spool-n").mkdir(parents=True)
        yield path / "flyball"
        for one in (path / "flyball", path / "flyball" / "spool-n"):
            one.chmod(0o700)


def as_other(folder: Path, script: str) -> tuple[str, str]:
    """What a script with `agent`, a configuration with that state folder, prints as a user without rights there."""
    command = [sys.executable, "-c", AS_OTHER + script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "HOME": "/"})
    return done.stdout, done.stderr


def test_a_spool_that_cannot_be_written_is_none(folder: Path) -> None:
    (folder / "spool-n").chmod(0o555)
    out, log = as_other(folder, 'print(open_spool(agent, "n"))')
    assert out == "None\n"
    assert f"there is no spool in {folder}/spool-n (it cannot be written)" in log


def test_the_doctor_reports_a_folder_that_must_not_be_entered(folder: Path) -> None:
    folder.chmod(0)
    script = 'print({one.name: one.detail for one in explain(Config(agent=agent)) if not one.ok}["agent.spool"])'
    out, log = as_other(folder, script)
    assert out == f"{folder}/spool-n cannot be written; an outage of Kafka loses records\n", log
