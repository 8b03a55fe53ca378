"""`bench/spine.py` at its smallest: every row is there, counts, and has figures that fit each other."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = ["worker", "engine", "plain_faust", "bare_loop", "bare_decode"]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "spine.json"
    command = [
        sys.executable,
        str(ROOT / "bench" / "spine.py"),
        "--size",
        "tiny",
        "--frames",
        "gpu",
        "--json",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "flyball worker" in done.stdout
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_every_row_counts(figures: dict[str, Any]) -> None:
    assert [run["frames"] for run in figures["runs"]] == ["gpu"]
    for run in figures["runs"]:
        assert [row["key"] for row in run["rows"]] == ROWS
        assert [row["problem"] for row in run["rows"]] == [""] * len(ROWS)
        for row in run["rows"]:
            rates = [ticks / cpu for ticks, cpu in zip(row["gpu_ticks"], row["cpu_s"], strict=True)]
            assert row["per_core"] == pytest.approx(rates)
            assert min(rates) > 0


def test_worker_and_engine_are_given_the_same_ticks(figures: dict[str, Any]) -> None:
    run = figures["runs"][0]
    rows = {row["key"]: row for row in run["rows"]}
    assert rows["worker"]["gpu_ticks"] == rows["engine"]["gpu_ticks"] == [run["gpus"] * run["size"]["ticks"]]


def test_ratios_and_circumstances_are_told(figures: dict[str, Any]) -> None:
    run = figures["runs"][0]
    assert run["ratios"]["of"] == "worker"
    assert sorted(run["ratios"]["over"]) == sorted(set(ROWS) - {"worker"})
    rows = {row["key"]: row for row in run["rows"]}
    ratio = rows["worker"]["per_core"][0] / rows["engine"]["per_core"][0]
    assert run["ratios"]["over"]["engine"] == pytest.approx([ratio])
    assert {"python", "jax", "numpy", "faust-streaming", "confluent-kafka", "librdkafka"} <= set(
        run["machine"]["versions"]
    )
    assert run["machine"]["cpu"]
    assert isinstance(run["seed"], int)
