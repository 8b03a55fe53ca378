"""``flyball diff`` as a user has it: exit status, tables and the file of pairs."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.cli.shell import check_refused, flyball
from tests.streams.test_difference import scale


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_bytes(b"".join(msgspec.json.encode(d) + b"\n" for d in (scale("a", 0, 2), scale("b", 100, 3))))
    new.write_bytes(b"".join(msgspec.json.encode(d) + b"\n" for d in (scale("a", 0, 2), scale("x", 130, 3))))
    return old, new


def test_the_same_is_0_and_a_difference_1(files: tuple[Path, Path]) -> None:
    old, new = files
    assert flyball("diff", old, old).returncode == 0
    done = flyball("diff", old, new)
    assert done.returncode == 1
    assert "1 → 3 replicas, +30 s" in done.stdout
    assert "moved" in done.stdout


def test_pairs_are_written_and_targets_chosen(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "pairs.json"
    assert flyball("diff", *files, "--json", out).returncode == 1
    assert [pair[0] for pair in json.loads(out.read_text())["pairs"]] == ["same", "moved"]
    assert flyball("diff", *files, "--target", "west/other").returncode == 0


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("worker: {}\n")
    done = flyball("diff", tmp_path / "a", tmp_path / "a")
    check_refused(done.returncode, done.stderr, "a:1: this line is not a decision", "replay --out")
