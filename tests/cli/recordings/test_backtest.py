"""`flyball backtest` as a user has it, with every output."""

import json
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from tests.cli.shell import check_refused, flyball
from tests.readme.blocks import lines, placed, run

from flyball_contracts.codec import decode_message, record_message
from flyball_contracts.records import WorkloadSpec
from flyball_contracts.topics import WORKLOADS
from flyball_streams.importers import IMPORTERS
from flyball_streams.recording import Recording, RecordingWriter

pytestmark = pytest.mark.timeout(600)
backtest = partial(flyball, "backtest", timeout_s=580.0)
"""The command, with the time to compile its policies on a busy machine."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of requests of one service."""
    folder = tmp_path_factory.mktemp("azure_llm_2023")
    rng = np.random.default_rng(5)
    ns = 1_700_000_000 * 10**9 + np.cumsum(rng.exponential(0.1, 36_000) * 1e9).astype(np.int64)
    frame = pl.DataFrame({"ns": ns, "service": ["chat"] * len(ns)}).with_columns(
        timestamp=pl.from_epoch("ns", time_unit="ns"),
        context_tokens=pl.Series(rng.integers(100, 4000, len(ns)), dtype=pl.Int32),
        generated_tokens=pl.Series(rng.integers(1, 400, len(ns)), dtype=pl.Int32),
    )
    frame.drop("ns").write_parquet(folder / "requests.parquet")
    return folder


def test_a_recording_gives_a_summary_json_and_a_page(trace: Path, tmp_path: Path) -> None:
    recording, out, html = (tmp_path / name for name in ("recording.parquet", "found.json", "found.html"))
    IMPORTERS["azure_llm_2023"].convert(trace, recording)
    options = ["--quick", "--baseline", "hpa,static", "--slo", 0.98, 5, "--cold-start", 60, "--safety"]
    done = backtest(recording, *options, "--engine", "both", "--json", out, "--html", html)
    assert done.returncode == 0, done.stderr
    assert "Flyball SLO headroom" in done.stdout
    assert "in simulation" in done.stdout
    assert "controller forgets all" in done.stdout
    found = json.loads(out.read_text())
    assert [row["key"] for row in found["rows"]] == ["slo_headroom", "hpa", "static"]
    assert [row["key"] for row in found["confirmed"]["rows"]] == ["slo_headroom", "hpa", "static"]
    assert "Second engine" in done.stdout
    assert (found["target"], found["delay_s"], found["cold_start_s"]) == (0.98, 5, 60.0)
    assert html.read_text().startswith("<!doctype html>")


def test_a_recording_is_backtested_as_the_engine_sums_it_up(trace: Path, tmp_path: Path) -> None:
    recording, out = tmp_path / "recording.parquet", tmp_path / "found.json"
    IMPORTERS["azure_llm_2023"].convert(trace, recording)
    done = backtest(recording, "--quick", "--policy", "forecast_band", "--baseline", "hpa", "--json", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert "ticks of 15 s" in found["about"]
    assert [row["key"] for row in found["rows"]] == ["forecast_band", "hpa"]
    assert found["work_hours"] > 0


@pytest.mark.integration  # it needs no server, but more time than a unit test may take
def test_the_readmes_line_writes_its_page(trace: Path, tmp_path: Path) -> None:
    IMPORTERS["azure_llm_2023"].convert(trace, tmp_path / "monday.parquet")
    line = placed(lines("flyball backtest")[0], {"chat-api": "azure_llm_2023-chat"}) + " --baseline hpa,static"
    assert "Flyball SLO headroom" in run(line, tmp_path).stdout
    assert (tmp_path / "backtest.html").read_text().startswith("<!doctype html>")


def test_the_limits_of_a_recorded_workload_bind_every_policy(trace: Path, tmp_path: Path) -> None:
    recording, less, out = tmp_path / "recording.parquet", tmp_path / "less.parquet", tmp_path / "found.json"
    IMPORTERS["azure_llm_2023"].convert(trace, recording)
    with RecordingWriter(less, made_by="test") as writer:
        for batch in Recording.open(recording).messages():
            for message in batch:
                if message.topic == WORKLOADS.name:
                    spec = decode_message(message.topic, message.value, message.headers)
                    assert isinstance(spec, WorkloadSpec)
                    tight = msgspec.structs.replace(spec, min_replicas=1, max_replicas=3)
                    message = message._replace(value=record_message(tight, "/test").value)
                writer.append(message)
    done = backtest(less, "--quick", "--policy", "forecast_band", "--baseline", "hpa", "--json", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert (found["least"], found["most"]) == (1, 3)
    assert max(max(found["series"][key]) for key in ("forecast_band", "hpa")) <= 3
    assert all(row["billed_hours"] <= 3 * 1.05 * found["test_hours"] for row in found["rows"])
    assert "Every policy has 1 to 3 replicas" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["RECORDING"]),
        (["no.parquet"], ["no.parquet", "no such file"]),
        (["x", "--policy", "magic"], ["'magic'", "headroom"]),
        (["x", "--baseline", "ours"], ["x: there is no such file"]),
        (["x", "--slo", "2", "5"], ["--slo", "share"]),
        (["x", "--slo", "0.99", "0"], ["--slo", "seconds from 1 on"]),
    ],
)
def test_wrong_use_is_one_line_with_the_remedy(arguments: list[str], words: list[str]) -> None:
    done = backtest(*arguments)
    check_refused(done.returncode, done.stderr, *words)
