"""`.ci/run` where `make test` fails: the house checks are shown too, and nothing that was begun goes on."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FETCHES = [path.parent.name for path in (ROOT / "infra").glob("*/fetch")]
# Only the tools' names are needed, so that nothing is installed: this run ends before any of them is used.
TOOLS = ("cc", "systemd-analyze", "openssl", "chromium")
MAKE = """#!/bin/sh
case $1 in
  check) echo "what the checks say" ;;
  test) while [ "$(ls "$RUNNING" | wc -l)" -lt 5 ]; do sleep 0.1; done; exit 1 ;;
esac
"""
FETCH = """#!/bin/sh
sleep 600 &
echo $! >"$RUNNING/.$$"
mv "$RUNNING/.$$" "$RUNNING/$$"
wait
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_a_failed_run_shows_the_checks_and_leaves_nothing_running(tmp_path: Path) -> None:
    assert len(FETCHES) > 5
    (tmp_path / "repository/.ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", tmp_path / "repository/.ci/run")
    for name in FETCHES:
        program(tmp_path / f"repository/infra/{name}/fetch", FETCH)
    program(tmp_path / "bin/make", MAKE)
    for name in TOOLS:
        program(tmp_path / "bin" / name, "#!/bin/sh\n")
    (tmp_path / "running").mkdir()
    done = subprocess.run(
        [tmp_path / "repository/.ci/run"], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "RUNNING": str(tmp_path / "running")},
    )  # fmt: skip
    assert done.returncode == 1
    assert "what the checks say" in done.stdout
    assert "make test has failed" in done.stdout
    begun = [int(file.read_text()) for file in (tmp_path / "running").glob("[0-9]*")]
    assert len(begun) >= 5
    assert [pid for pid in begun if lives(pid)] == []


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
