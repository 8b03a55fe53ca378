"""Values that are well formed and cannot be: refused before anything is started, in one line."""

import socket
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.shell import check_refused, flyball

from flyball_cli.commands.recordings.replay_command import tabulated
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
        (["demo", "--headless", "--for", "nan"], ["--for", "nan"]),
        (["demo", "--headless", "--for", "5", "--speed", "inf"], ["--speed", "inf"]),
        (["demo", "--headless", "--for", "5", "--speed", "1e6"], ["--speed", "3600"]),
        (["backtest", "a", "--cold-start", "nan"], ["--cold-start", "nan"]),
        (["backtest", "a", "--slo", "0.9", "nan"], ["--slo", "nan"]),
        (["topics", "--acls", "--create"], ["--acls", "--create"]),
        (["audit", "verify", "/nowhere"], ["/nowhere", "actuator.audit"]),
        (["audit", "verify", "/"], ["/: is no file", "actuator.audit"]),
        (["doctor", "--nvml", "--burn-in", "1"], ["--nvml", "--burn-in"]),
        (["doctor", "--gpus", "8"], ["--gpus", "--burn-in"]),
        (["fleet", "--listen", "127.0.0.1"], ["--listen", "'127.0.0.1'", "HOST:PORT"]),
        (["fleet", "--listen", "127.0.0.1:99999"], ["--listen", "HOST:PORT"]),
        (["incidents", "notify", "--webhook", "http://me:secret@pager:99999/"], ["//...@pager", "is no address"]),
        (["replay", "/etc/hostname", "--out", "/etc/../etc/hostname", "--force"], ["/etc/hostname", "name a new one"]),
        (["keys", "show", "/nowhere"], ["FILE: /nowhere: ", "flyball keys new /nowhere"]),
        (["topics", "--bootstrap", "kafka"], ["--bootstrap", "'kafka'", "HOST:PORT"]),
        (["topics", "--bootstrap", "a:1,http://b:2"], ["--bootstrap", "'http://b:2'", "HOST:PORT"]),
        (["topics", "--bootstrap", "kafka:abc"], ["--bootstrap: 'kafka:abc'", "HOST:PORT"]),
        (["stop", "--reason", "a", "--bootstrap", ""], ["--bootstrap: it is empty", "HOST:PORT"]),
        (["demo", "--headless", "--for", "5", "--seed", "-5"], ["--seed", "-5"]),
        (["fleet", "--seed", "-5"], ["--seed", "-5"]),
    ],
)
def test_out_of_range_or_of_no_use_together(arguments: list[str], words: list[str]) -> None:
    done = flyball(*arguments)
    check_refused(done.returncode, done.stderr, *words)


def test_a_port_that_is_taken_is_known_before_the_demo_begins() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = flyball("demo", "--for", "5", "--port", port)
    check_refused(done.returncode, done.stderr, "--port", str(port))


def test_a_folder_is_no_health_file(tmp_path: Path) -> None:
    assert flyball("health", tmp_path).returncode == 1


@pytest.mark.parametrize("command", [["dashboard", "--port", "0"], ["actuate"], ["topics", "--create"]])
def test_client_settings_that_librdkafka_refuses(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "flyball.yaml"
    path.write_text("kafka:\n  client: {ssl.ca.place: /etc/ca.pem}\n")
    done = flyball(*command, "--config", path)
    check_refused(done.returncode, done.stderr, f"{path}:2: kafka.client: ", "ssl.ca.place")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pools:\n  - nam: gpu\n", [":2", "pools[0].nam", "'name'"]),
        ("seed: 3\npools: []\n", [":2", "pools: there are none"]),
        ("pools:\n  - {name: a, sku: h100, nodes: 1, zone: Mars}\n", [":2", "pools[0].zone", "'Mars'"]),
        (
            "seed: 3\nbatches:\n  - {name: a, pools: [none], replicas: 1, nominal_replicas: 1, duration_s: 9}\n",
            [":3", "batches[0].pools"],
        ),
    ],
)
def test_a_demo_of_a_fleet_that_cannot_be(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    for command in (["demo", "--headless", "--for", "5", "--fleet", path], ["fleet", path]):
        done = flyball(*command)
        check_refused(done.returncode, done.stderr, str(path), *words)


def test_a_replay_reports_workloads_without_a_specification() -> None:
    stats = {"node/0": LaneStats(ticks=3), "workload/0": LaneStats(without_spec=2), "workload/1": LaneStats()}
    console = Console(width=120)
    with console.capture() as shown:
        console.print(tabulated(Replayed([], Counter(), Counter(), Counter(), stats)))
    (line,) = [line for line in shown.get().splitlines() if "specification" in line]
    assert line.split()[-1] == "2"
