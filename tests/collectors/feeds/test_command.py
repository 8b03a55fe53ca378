"""`flyball feed` as a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.collectors.feeds.feed_server import Answer, provider

TOKEN = "tok-8d1f2"


def feed(tmp_path: Path, text: str, *more: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "flyball.yaml"
    path.write_text(text)
    environ = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, "-m", "flyball_cli", "feed", "--config", str(path), "--log-level", "DEBUG", *more],
        env=environ | {"ELECTRICITYMAPS_TOKEN": TOKEN, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_once_prints_curves_and_reasons(tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("time,value\n2100-01-01T00:00Z,250\n2100-01-01T01:00Z,150\n")
    with provider() as there:
        there.say(Answer(b"", 401))
        done = feed(
            tmp_path,
            f"""
            feeds:
              file: [{{zone: DE, kind: electricity_price, path: {prices}, scale: 0.001}}]
              electricity_maps: [{{zone: DE, base_url: "{there.url}"}}]
            """,
            "--once",
        )
    assert done.returncode == 1, done.stderr
    row = next(line for line in done.stdout.splitlines() if "file/DE" in line)
    assert row.split()[:6] == ["file/DE/electricity_price", "0.25", "0.15", "0.25", "USD/kWh", "2"]
    told = " ".join(done.stdout.split())
    assert f"{there.url}/v3/carbon-intensity/forecast: status 401, refused; check the token" in told
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "error: feeds: none is configured; `flyball config example` shows them all\n"),
        ("feeds: {uk_carbon: [{base_url: 'http://a:b@c'}]}", "feeds.uk_carbon[0].base_url"),
        ("feeds: {watttime: [{zone: x}]}", "feeds.watttime[0].username_env: the environment variable WATTTIME_USER"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    done = feed(tmp_path, text)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
