"""What drivers promise, and what they were seen to do."""

import json
import time
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from tests.actuators.loop import publish
from tests.actuators.samples import NOW, migrate, preempt, scale
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import flyball

from flyball_actuators.platforms.table import DRIVERS
from flyball_cli.commands.setup.platforms_command import command
from flyball_cli.platforms.observed import Row, rows
from flyball_cli.platforms.shown import HEADER, entries
from flyball_contracts.config import PlatformConfig
from flyball_contracts.records import AnyDecision, Outcome, SubjectState
from flyball_contracts.topics import TOPICS


def outcome(decision: AnyDecision, status: Any = "done", driver: str = "kueue", **more: Any) -> Outcome:
    kind: Any = type(decision).__name__
    return Outcome(
        id=f"{decision.id}/{status}", decision=decision.id, type=kind, target=decision.target,
        cell=decision.cell, workload=decision.workload, time_ns=NOW, status=status, mode="live", driver=driver, **more,
    )  # fmt: skip


def state(replicas: int, ready: int | None = None) -> SubjectState:
    return SubjectState(replicas=replicas, ready=replicas if ready is None else ready)


def test_each_driver_has_a_row_and_each_row_a_driver() -> None:
    assert set(DRIVERS) == set(get_args(get_type_hints(PlatformConfig)["driver"]))
    for name, can in DRIVERS.items():
        assert len(entries(name, can, None, observed=False)) == len(HEADER)


def test_a_row_is_what_was_seen() -> None:
    start, late = (scale(id_, before=0, after=4) for id_ in "ac")
    stop = preempt("b", before=4, after=0, victims=("x",))
    other = preempt("o", before=4, after=2, victims=("y",), time_ns=NOW)
    decisions: list[AnyDecision] = [start, stop, other, late, migrate("d"), scale("e"), scale("f")]
    outcomes = [
        outcome(start, "accepted"),
        outcome(start, expected=state(4), observed=state(4), effect_after_s=3.0),
        outcome(stop, expected=state(0), observed=replace(state(0), nodes={"x": ""}), effect_after_s=5.0),
        outcome(other, expected=state(2), observed=replace(state(2), nodes={"y": "n1"})),
        outcome(late, "failed", before=state(0), expected=state(4), observed=state(0, 0)),
        outcome(migrate("d"), "failed", before=state(4), observed=state(3)),
        outcome(scale("e"), expected=state(6), observed=state(6, 5), effect_after_s=9.0),
        outcome(scale("f"), "planned"),
        outcome(scale("g"), "refused", driver="autoscaler"),
    ]
    found = rows(decisions, outcomes)
    assert found["autoscaler"] == Row(driver="autoscaler", refused=1)
    assert found["kueue"] == Row(
        driver="kueue", verbs={"Migrate": (0, 1), "Preempt": (2, 2), "Scale": (2, 3)}, planned=1, victims=(1, 2),
        checkpoints=2, gang=(3, 3), rollback=(1, 2), effect=(3, 4), effect_after_s=5.0,
    )  # fmt: skip
    shown = entries("kueue", DRIVERS["kueue"], found["kueue"], observed=True)
    assert shown[2:] == (
        "Preempt 2/2\nScale 2/3", "platform: 1", "no", "no", "no", "yes: 1 of 2 failures", "yes: 3 of 3 whole",
        "no", "no", "seen: 3 of 4, 5.0 s",
    )  # fmt: skip


def test_a_gang_that_is_apart_is_not_whole() -> None:
    start = scale("a", before=0, after=4)
    half = outcome(start, "failed", expected=state(4), observed=state(4, 2))
    assert rows([start], [half])["kueue"].gang == (0, 1)


@pytest.mark.parametrize(("left", "held"), [(state(2), 1), (state(3), 1), (state(4, 3), 0), (state(1), 0)])
def test_what_failed_is_taken_back_but_for_what_is_ready(left: SubjectState, held: int) -> None:
    more = scale("a", before=2, after=4)
    assert rows([more], [outcome(more, "failed", before=state(2), observed=left)])["kueue"].rollback == (held, 1)


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_the_table_is_printed_without_a_broker(arguments: tuple[str, ...]) -> None:
    done = flyball("platforms", *arguments)
    assert done.returncode == 0, done.stderr
    if arguments:
        found = {row["driver"]: row["capabilities"] for row in json.loads(done.stdout)}
        assert found["kueue"]["promises"]["gang"]
        assert not any(can["promises"]["scrub"] for can in found.values()), "say in README.md who clears memory"
        assert found["autoscaler"]["kinds"] == ["Preempt", "Scale"]
    else:
        lines = done.stdout.splitlines()
        assert [line.partition(":")[0] for line in lines] == list(DRIVERS), "in a pipe each driver is one line"
        assert all("checkpoint: " in line for line in lines)


def test_a_wide_terminal_has_a_table() -> None:
    terminal = {"COLUMNS": "200", "FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}
    heading, *rows = CliRunner().invoke(command, env=terminal).output.splitlines()
    assert [word for word in HEADER if word not in heading] == []
    assert len(rows) >= len(DRIVERS)


def test_on_a_narrow_terminal_no_word_is_cut() -> None:
    terminal = {"COLUMNS": "80", "FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "dumb"}
    shown = CliRunner().invoke(command, env=terminal).output
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("Scale; dry run") == len(DRIVERS) - 1
    assert shown.count("checkpoint:") == len(DRIVERS)


def test_what_was_seen_is_read_from_the_broker(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    bootstrap = embedded_broker({name: 2 for name in TOPICS}).bootstrap
    start = scale("a", before=0, after=4, time_ns=time.time_ns())
    publish(bootstrap, start, outcome(start, expected=state(4), observed=state(4), effect_after_s=3.0))
    done = flyball("platforms", "--observed", "--json", "--bootstrap", bootstrap)
    assert done.returncode == 0, done.stderr
    seen = {row["driver"]: row["seen"] for row in json.loads(done.stdout)}
    assert (seen["kueue"]["verbs"], seen["kueue"]["effect"], seen["slurm"]) == ({"Scale": [1, 1]}, [1, 1], None)
