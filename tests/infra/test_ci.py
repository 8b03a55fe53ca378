"""`.ci/run` itself: what it was seen to do where all passes, something fails, or the run is interrupted."""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FETCHES = [path.parent.name for path in (ROOT / "infra").glob("*/fetch")]
# Only the tools' names are needed, so that nothing is installed: this run ends before any of them is used.
TOOLS = ("cc", "systemd-analyze", "openssl", "chromium")
END_S = 120.0
MAKE = """#!/bin/sh
case $1 in
  check) echo "what the checks say"; touch "$RUNNING/.checked" ;;
  test) while [ "$(ls "$RUNNING" | wc -l)" -lt 5 ] || ! [ -e "$RUNNING/.checked" ]; do sleep 0.1; done
    [ "$HANGS" ] || exit 1
    trap 'sleep 1.5; touch "$RUNNING/.stopped"; exit 1' TERM
    sleep 600 &
    echo $! >"$RUNNING/.0"
    mv "$RUNNING/.0" "$RUNNING/0"
    wait ;;
esac
"""
PASSES = """#!/bin/sh
case $1 in
  check) echo "what the checks say"; [ "$FAILS" != checks ] ;;
  fuzz) echo "an input that breaks it"; exit 1 ;;
  integration) echo "row: $2"; [ "$2" != "ARGS=$FAILS" ] ;;
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


@pytest.mark.parametrize("fails", ["", "tests/faults", "checks"])
def test_rows_of_tests_fail_a_run_and_what_fuzzing_finds_is_told(tmp_path: Path, fails: str) -> None:
    repository(tmp_path, PASSES, "#!/bin/sh\necho /there\n")
    program(tmp_path / "repository/.venv/bin/python", "#!/bin/sh\necho platforms\n")
    run = subprocess.run(
        [tmp_path / "repository/.ci/run"], capture_output=True, text=True, timeout=END_S, check=False,
        env=environment(tmp_path) | {"FAILS": fails},
    )  # fmt: skip
    assert run.stdout.count("row: ARGS=") == 6, run.stderr
    assert "an input that breaks it" in run.stdout
    assert "FOUND BY FUZZING" in run.stdout
    assert run.returncode == bool(fails)
    assert ("== passed" in run.stdout) == (not fails)
    assert "what the checks say" in run.stdout
    assert ("== integration tests have failed" in run.stdout) == (fails == "tests/faults")
    assert ("== house checks have failed" in run.stdout) == (fails == "checks")


@pytest.mark.parametrize("interrupted", [None, signal.SIGTERM, signal.SIGINT])
def test_a_failed_or_interrupted_run_leaves_nothing_running(tmp_path: Path, interrupted: signal.Signals | None) -> None:
    assert len(FETCHES) > 5
    repository(tmp_path, MAKE, FETCH)
    (tmp_path / "running").mkdir()
    run = subprocess.Popen(
        ["env", "--default-signal=INT", tmp_path / "repository/.ci/run"],  # what runs these tests may ignore it
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment(tmp_path) | {"RUNNING": str(tmp_path / "running"), "HANGS": "yes" if interrupted else ""},
    )  # fmt: skip
    try:
        if interrupted:
            until = time.monotonic() + END_S
            while not (tmp_path / "running/0").exists() and time.monotonic() < until:
                time.sleep(0.1)
            run.send_signal(interrupted)
        said, _ = run.communicate(timeout=END_S)
        begun = processes(tmp_path)
        until = time.monotonic() + END_S / 2
        while any(map(lives, begun)) and time.monotonic() < until:
            time.sleep(0.1)
        assert [pid for pid in begun if lives(pid)] == []
    finally:
        run.terminate()
        run.wait(END_S)
        for pid in processes(tmp_path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert len(begun) >= 5
    assert run.returncode == (1 if interrupted is None else -interrupted)
    if interrupted:
        assert (tmp_path / "running/.stopped").exists(), "the tests have time to stop their servers"
    else:
        assert "what the checks say" in said
        assert "make test has failed" in said


def repository(folder: Path, make: str, fetch: str) -> None:
    """The script in a folder of its own, with these in place of what it calls."""
    (folder / "repository/.ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", folder / "repository/.ci/run")
    for name in FETCHES:
        program(folder / f"repository/infra/{name}/fetch", fetch)
    program(folder / "bin/make", make)
    for name in TOOLS:
        program(folder / "bin" / name, "#!/bin/sh\n")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def processes(folder: Path) -> list[int]:
    return [int(file.read_text()) for file in (folder / "running").glob("[0-9]*")]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
