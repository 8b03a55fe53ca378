"""Commands on a disk that is really full: one line with the place, and no part of a file is left."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import Forked, check_refused, command, environment, flyball
from tests.full_disk import on_small_disk

from flyball_contracts.topics import TOPICS
from flyball_streams.importers import IMPORTERS

FULL = os.strerror(28)
PARTITIONS = {name: topic.partitions for name, topic in TOPICS.items()}
BACKTEST = ("--quick", "--policy", "forecast_band", "--baseline", "hpa")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (folder := tmp_path / "disk").mkdir()
    return folder


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of requests of one service."""
    folder = tmp_path_factory.mktemp("azure_llm_2023")
    seconds = pl.Series(range(3600), dtype=pl.Int64)
    pl.DataFrame({"service": ["chat"] * 3600, "timestamp": 1_700_000_000 + seconds}).with_columns(
        timestamp=pl.from_epoch("timestamp").cast(pl.Datetime("ns")),
        context_tokens=pl.lit(1000, pl.Int32),
        generated_tokens=pl.lit(100, pl.Int32),
    ).write_parquet(folder / "requests.parquet")
    return folder


def test_a_replay_leaves_no_part_of_its_file(recording: Path, disk: Path) -> None:
    done = on_small_disk(disk, 4, *command("replay", recording, "--out", disk / "a.jsonl"))
    check_refused(done.status, done.stderr, str(disk / "a.jsonl"), FULL)
    assert done.left == []


def test_an_import_leaves_no_part_of_its_file(trace: Path, disk: Path) -> None:
    done = on_small_disk(disk, 4, *command("import", "azure_llm_2023", trace, disk / "a.parquet"))
    check_refused(done.status, done.stderr, str(disk / "a.parquet"), "is the disk full?")
    assert done.left == []


def test_a_record_leaves_no_part_of_its_file(
    recording: Path, disk: Path, embedded_broker: Callable[..., EmbeddedBroker]
) -> None:
    broker = embedded_broker(PARTITIONS).bootstrap
    assert flyball("replay", recording, "--to-broker", "--bootstrap", broker).returncode == 0
    done = on_small_disk(disk, 64, *command("record", disk / "a.parquet", "--bootstrap", broker, "--for", 5))
    check_refused(done.status, done.stderr, str(disk / "a.parquet"), "is the disk full?")
    assert done.left == []


def test_a_key_that_has_no_room_is_not_in_the_way_of_the_next(disk: Path) -> None:
    filled = 'head -c 4096 /dev/zero > "$0/full"; exec "$@"'
    done = on_small_disk(disk, 4, "sh", "-c", filled, disk, *command("keys", "new", disk / "a.pem"))
    check_refused(done.status, done.stderr, str(disk / "a.pem"), FULL, "run the command again")
    assert done.left == ["full"]


def test_schemas_that_have_no_room_name_their_folder(disk: Path) -> None:
    done = on_small_disk(disk, 4, *command("schema", "--write", disk))
    check_refused(done.status, done.stderr, str(disk), FULL)


@pytest.mark.parametrize("kind", ["json", "html"])
def test_a_backtest_shows_what_it_cannot_write(trace: Path, disk: Path, tmp_path: Path, kind: str) -> None:
    IMPORTERS["azure_llm_2023"].convert(trace, tmp_path / "recording.parquet")
    out = disk / f"a.{kind}"
    done = on_small_disk(disk, 4, *command("backtest", tmp_path / "recording.parquet", *BACKTEST, f"--{kind}", out))
    check_refused(done.status, done.stderr, str(out), FULL)
    assert done.left == []
    assert "HPA" in done.stdout


def test_a_backtest_writes_what_it_cannot_show(trace: Path, tmp_path: Path) -> None:
    IMPORTERS["azure_llm_2023"].convert(trace, tmp_path / "recording.parquet")
    out, errors = tmp_path / "a.json", tmp_path / "errors"
    errors.touch()
    line = ("backtest", str(tmp_path / "recording.parquet"), *BACKTEST, "--json", str(out))
    status = Forked("flyball_cli", *line, output="/dev/full", errors=str(errors), env=environment()).wait(500.0)
    check_refused(status, errors.read_text(), "output", FULL)
    assert '"hpa"' in out.read_text()


def test_a_demo_on_a_full_folder_for_temporary_files(disk: Path) -> None:
    done = on_small_disk(disk, 16, *command("demo", "--for", 5), TMPDIR=str(disk))
    check_refused(done.status, done.stderr, str(disk), "make room there, or let TMPDIR name another folder")
    assert (done.stdout, done.left) == ("", [])


FILLED = """
import sys
from contextlib import suppress
from pathlib import Path
from flyball_cli.demo.children import Child
folder = Path(sys.argv[1])
service = Child("topics", ["topics", "--no-such-option"], folder)
service.wait()
print(service.failure())
with suppress(OSError), open(folder / "filled", "wb", 0) as file:
    while True:
        file.write(bytes(4096))
print("FULL", service.failure())
"""


def test_a_service_of_the_demo_fails_on_a_disk_that_has_filled(disk: Path) -> None:
    """Its log may be empty: there is no room for that either."""
    before, _, full = on_small_disk(disk, 64, sys.executable, "-c", FILLED, disk).stdout.partition("FULL")
    assert "topics ended with status 2" in before
    assert "make room" not in before
    assert f"{disk} is on a full disk; make room there, or let TMPDIR name another folder" in full
