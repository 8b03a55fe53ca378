"""`flyball feed` as a process."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.cli.shell import flyball


def feed(tmp_path: Path, text: str, *more: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "flyball.yaml"
    path.write_text(text)
    environ = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return flyball("feed", "--config", path, "--log-level", "DEBUG", *more, env=environ | {"COLUMNS": "80"})


def test_once_prints_curves_and_reasons(tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("time,value\n2100-01-01T00:00Z,250\n2100-01-01T01:00Z,150\n")
    done = feed(
        tmp_path,
        f"""
        feeds:
          - {{source: file, zone: DE, kind: electricity_price, path: {prices}, scale: 0.001}}
          - {{source: file, zone: DE, path: {tmp_path}/none.csv}}
        """,
        "--once",
    )
    assert done.returncode == 1, done.stderr
    row = next(line for line in done.stdout.splitlines() if "file/DE" in line)
    assert row.split()[:6] == ["file/DE/electricity_price", "0.25", "0.15", "0.25", "USD/kWh", "2"]
    assert "none.csv" in "".join(done.stdout.split()), "a long path is wrapped anywhere"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("{}", "error: feeds: none is configured; `flyball config example` shows them all\n"),
        ("feeds: [{source: carbon, zone: x}]", "feeds[0].source: expected one of file, uk_carbon, electricity_maps"),
        ("feeds: [{source: uk_carbon, zon: x}]", "feeds[0].zon: unknown key; did you mean 'zone'?"),
        ("feeds: {uk_carbon: [{zone: GB}]}", "feeds.uk_carbon: was removed: feeds is a list; write {source: NAME, "),
        ("feeds: [{source: watttime, zone: x}]", "feeds[0]: the environment variable WATTTIME_USER"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_line(tmp_path: Path, text: str, reported: str) -> None:
    done = feed(tmp_path, text)
    assert done.returncode == 2
    assert reported in done.stderr
    assert "Traceback" not in done.stderr
