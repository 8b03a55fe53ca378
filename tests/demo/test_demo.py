"""The whole loop as `make demo` runs it."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.brokers.kafka import RealKafka
from tests.cli.shell import flyball, start
from tests.readme.blocks import lines, placed, run

SERVICES = {"worker", "actuate", "fleet", "agent"}
ALL_KINDS_S = 65
DEADLINE_S = 120.0
LOADED_S = 1500.0
"""For a demo to end that shares the cores with other tests."""


def check_closed(done: subprocess.CompletedProcess[str], *kinds: str) -> None:
    """Exit status 0, a table with decisions of these kinds, an outcome for each decision, and no dead letters."""
    summary_text = done.stdout.rpartition(
        "\nFlyball demo"
    )  # before it are the decisions, too many to see anything else
    summary = "".join(summary_text[1:]) + done.stderr
    assert done.returncode == 0, summary
    rows = {
        label: int(line.removeprefix(label).split()[0].replace(",", ""))
        for line in summary_text[2].splitlines()
        for label in (
            "telemetry frames",
            "insights",
            "outcomes",
            "effects observed",
            "dead letters",
            *(f"{k} decisions" for k in KINDS),
        )
        if line.startswith(label)
    }
    assert rows["telemetry frames"] > 0
    assert rows["insights"] > 0
    assert rows["dead letters"] == 0, summary
    decisions = sum(rows[f"{kind} decisions"] for kind in KINDS)
    assert decisions > 0
    (counts,) = (line for line in summary_text[2].splitlines() if line.startswith("outcomes"))
    under_way = re.search(r"(\d+) under way", counts)
    assert rows["outcomes"] + int(under_way[1] if under_way else 0) == decisions, summary
    assert rows["effects observed"] > 0, summary
    for kind in kinds:
        assert rows[f"{kind} decisions"] > 0, summary
    assert "the loop closed" in summary
    assert "Traceback" not in done.stderr


KINDS = ("Scale", "Migrate", "Preempt")


@pytest.mark.timeout(1800)
def test_fleet_on_the_embedded_broker() -> None:
    check_closed(flyball("demo", "--headless", "--for", ALL_KINDS_S, "--seed", 7, timeout_s=LOADED_S), *KINDS)


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_fleet_on_kafka_twice(real_kafka: RealKafka) -> None:
    # The second run finds what the first has left: its topics, its decisions and its workers' states.
    at = ["--bootstrap", real_kafka.bootstrap]
    check_closed(flyball("demo", "--headless", "--for", 45, *at, timeout_s=LOADED_S))
    check_closed(flyball("demo", "--headless", "--for", ALL_KINDS_S, "--seed", 7, *at, timeout_s=LOADED_S), *KINDS)


@pytest.fixture(scope="session")
def gentd26(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    line, _ = lines("flyball import")
    done = run(placed(line, {"path/to": str(data_dir)}), folder)
    assert "messages over" in done.stdout
    return folder / "gentd26.parquet"


@pytest.mark.integration
@pytest.mark.timeout(1800)
def test_recording(gentd26: Path) -> None:
    line = placed(lines("flyball import")[1], {"--for 240": "--for 90"})
    check_closed(run(line, gentd26.parent, status=None, timeout_s=LOADED_S))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary files of a demo, which stay there if it is killed."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@contextmanager
def running() -> Generator[tuple[subprocess.Popen[str], dict[str, int]]]:
    """A demo with all its services up, and their process ids by name; nothing is left of it in the end."""
    demo = start("demo", "--headless", "--for", "100")
    pids: dict[str, int] = {}
    try:
        wait_until(lambda: pids.update(services(demo.pid)) or set(pids) >= SERVICES, "the services are up")
        yield demo, pids
    finally:
        demo.kill()
        demo.communicate()
        left = [pid for pid in pids.values() if lives(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)


def services(pid: int) -> dict[str, int]:
    """Process ids of a demo's services, by the name of their command."""
    found: dict[str, int] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if "flyball_cli.demo.leash" in words:
            found[words[words.index("flyball_cli.demo.leash") + 2]] = int(child)
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(done: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < give_up, f"{what}: not within {DEADLINE_S:.0f} s"
        time.sleep(0.1)


def test_a_killed_worker_is_reported_and_fails_the_demo() -> None:
    with running() as (demo, pids):
        os.kill(pids["worker"], signal.SIGKILL)
        out, _ = demo.communicate(timeout=DEADLINE_S)
        assert demo.returncode == 1
        assert "worker ended by SIGKILL" in out
        assert not any(lives(pid) for pid in pids.values())


def test_interrupt_ends_everything(temporary: Path) -> None:
    with running() as (demo, pids):
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=DEADLINE_S)
        assert demo.returncode == 130
        assert "interrupted" in out
        assert "Traceback" not in out + err
        assert not any(lives(pid) for pid in pids.values())
        assert not list(temporary.iterdir())


def test_services_do_not_outlive_a_killed_demo() -> None:
    with running() as (demo, pids):
        demo.kill()
        demo.wait()
        wait_until(lambda: not any(lives(pid) for pid in pids.values()), "the services are gone")
