"""Files that a user names: what is there is never lost, and what cannot be written is known before the work."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.cli.shell import check_refused, environment, flyball

from flyball_cli.outputs import output, written


def test_a_file_that_exists_stays_without_force(tmp_path: Path) -> None:
    out = tmp_path / "decisions.jsonl"
    out.write_text("keep")
    for command in (["replay", "a.parquet", "--out", out], ["import", "azure_llm_2023", "a", out], ["record", out]):
        done = flyball(*command)
        check_refused(done.returncode, done.stderr, str(out), "--force")
    assert out.read_text() == "keep"


def test_a_file_that_is_read_stays_with_force(tmp_path: Path) -> None:
    config, trace = tmp_path / "flyball.yaml", tmp_path / "trace"
    trace.mkdir()
    inside = trace / "requests.csv"
    for path in (config, inside):
        path.write_text("{}")
    for command in (["record", config, "--config", config], ["import", "azure_llm_2023", trace, inside]):
        done = flyball(*command, "--force")
        check_refused(done.returncode, done.stderr, str(command[-1]))
    assert (config.read_text(), inside.read_text()) == ("{}", "{}")


def test_a_recording_that_cannot_be_read_empties_nothing(tmp_path: Path) -> None:
    recording, out = tmp_path / "a.parquet", tmp_path / "decisions.jsonl"
    recording.write_text("no Parquet")
    out.write_text("keep")
    done = flyball("replay", recording, "--out", out, "--force")
    check_refused(done.returncode, done.stderr, str(recording))
    assert out.read_text() == "keep"


@pytest.mark.parametrize("path", ["/dev/null", ".", "missing/out.html", "/proc/out.html"])
def test_what_is_no_file_is_refused_at_once(path: str) -> None:
    done = flyball("backtest", "a.parquet", "--html", path, "--force")
    check_refused(done.returncode, done.stderr, path)


def test_a_link_is_followed_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    with written(output(link, force=True)) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [link, real]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def fail() -> None:
        with written(output(path, force=True)) as file:
            file.write(b"half")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    with written(output(tmp_path / "a", force=False)):
        pass
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(click.UsageError, match="cannot be written"):
        output(tmp_path / "a", force=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_standard_output_on_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "flyball_cli", "topics"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    check_refused(done.returncode, done.stderr, "output", os.strerror(28))
