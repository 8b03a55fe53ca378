"""Help is quick, because it needs none of the heavy packages, and it shows how each command is used."""

import json
import os
import subprocess
import sys

import pytest
from tests.cli.setup.test_light_agent import HEAVY
from tests.cli.shell import check_refused, flyball

from flyball_cli.main import COMMANDS

PROGRAM = f"""
import contextlib, io, json, sys
for name in {HEAVY!r}:
    sys.modules[name] = None  # importing it now raises ImportError
from flyball_cli.main import COMMANDS, flyball
texts = {{}}
for name in ("", *COMMANDS):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        flyball.main([*name.split(), "--help"], prog_name="flyball", standalone_mode=False)
    texts[name] = out.getvalue()
print(json.dumps(texts))
"""


def test_every_help_shows_an_example_and_needs_no_heavy_package() -> None:
    narrow = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False, env=narrow
    )
    assert done.returncode == 0, done.stderr
    texts: dict[str, str] = json.loads(done.stdout)
    for name in COMMANDS:
        assert f"Usage: flyball {name}" in texts[name]
        assert f"flyball {name}" in texts[name].partition("Example")[2], f"{name} shows no example of itself"
        assert name in texts[""]
    for name, text in texts.items():
        assert "\\b" not in text, name
        assert max(map(len, text.splitlines())) <= 80, name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wroker"], ["'wroker'", "did you mean 'worker'?"]),
        (["replay"], ["RECORDING", "flyball replay --help"]),
        (["topics", "--creat"], ["--creat", "flyball topics --help"]),
        (["topics", "--log-level", "LOUD"], ["'LOUD'", "WARNING"]),
        (["demo", "--headless"], ["--for"]),
        (["schema", "Scael"], ["'Scael'", "Scale"]),
        (["import", "nasa"], ["'nasa'", "alibaba_gentd26"]),
        (["import", "servegen"], ["folder"]),
        (["sink", "influx"], ["influx.url"]),
    ],
)
def test_wrong_use_is_one_line_with_the_remedy(arguments: list[str], words: list[str]) -> None:
    done = flyball(*arguments)
    check_refused(done.returncode, done.stderr, *words)


@pytest.mark.parametrize("arguments", [[], ["workloads"]])
def test_a_group_alone_shows_its_help(arguments: list[str]) -> None:
    done = flyball(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Usage: flyball{''.join(f' {name}' for name in arguments)} [OPTIONS]")
    assert "\nCommands:\n" in done.stderr


def test_examples_stand_on_lines_of_their_own() -> None:
    shown = flyball("replay", "--help").stdout
    assert "\\b" not in shown
    assert "\n    flyball replay monday.parquet --out decisions.jsonl\n" in shown
