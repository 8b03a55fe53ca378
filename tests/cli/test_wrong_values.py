"""Values that are well formed and cannot be: refused before anything is started, in one line."""

from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.shell import check_refused, flyball

from flyball_cli.commands.replay_command import tabulated
from flyball_streams.engine.stats import LaneStats
from flyball_streams.recording.offline import Replayed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fleet", "--speed", "-1"], ["--speed", "-1"]),
        (["fleet", "--ticks", "0"], ["--ticks", "0"]),
        (["record", "out", "--for", "-1"], ["--for", "-1"]),
        (["replay", "a", "--to-broker", "--speed", "0"], ["--speed", "0"]),
        (["replay", "a", "--rebase"], ["--rebase", "--to-broker"]),
        (["replay", "a", "--to-broker", "--out", "b"], ["--out", "--to-broker"]),
        (["topics", "--create", "--replicas", "0"], ["--replicas", "0"]),
        (["demo", "--recording", "a", "--fleet", "b"], ["--recording", "--fleet"]),
    ],
)
def test_out_of_range_or_of_no_use_together(arguments: list[str], words: list[str]) -> None:
    done = flyball(*arguments)
    check_refused(done.returncode, done.stderr, *words)


@pytest.mark.parametrize("command", [["dashboard", "--port", "0"], ["actuate"], ["topics", "--create"]])
def test_client_settings_that_librdkafka_refuses(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "flyball.yaml"
    path.write_text("kafka:\n  client: {ssl.ca.place: /etc/ca.pem}\n")
    done = flyball(*command, "--config", path)
    check_refused(done.returncode, done.stderr, str(path), "kafka.client", "ssl.ca.place")


@pytest.mark.parametrize(
    ("text", "words"),
    [("pools:\n  - nam: gpu\n", [":2", "pools[0].nam", "'name'"]), ("pools: []\n", ["pools: there are none"])],
)
def test_a_demo_of_a_fleet_that_cannot_be(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    done = flyball("demo", "--headless", "--for", "5", "--fleet", path)
    check_refused(done.returncode, done.stderr, *words)


def test_a_replay_tells_of_workloads_without_a_specification() -> None:
    stats = {"node/0": LaneStats(ticks=3), "workload/0": LaneStats(without_spec=2), "workload/1": LaneStats()}
    console = Console(width=120)
    with console.capture() as shown:
        console.print(tabulated(Replayed([], Counter(), Counter(), Counter(), stats)))
    (line,) = [line for line in shown.get().splitlines() if "specification" in line]
    assert line.split()[-1] == "2"
