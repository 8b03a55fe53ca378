"""The table of a whole run fails where a driver's promise was never seen."""

from pathlib import Path

import msgspec
import pytest
from tests.actuators.rows import NEEDS, Seen, main, unseen
from tests.actuators.samples import NOW, preempt, scale

from flyball_actuators.platforms.table import DRIVERS
from flyball_cli.platforms.observed import Row
from flyball_contracts.records import AnyDecision, Outcome, SubjectState
from flyball_contracts.records.commands.outcomes import OutcomeStatus


def outcome(decision: AnyDecision, status: OutcomeStatus, state: SubjectState) -> Outcome:
    return Outcome(
        id=f"{decision.id}/{status}", decision=decision.id, type="Preempt", target=decision.target, mode="live",
        cell=decision.cell, workload=decision.workload, time_ns=NOW, status=status, driver="docker", before=state,
        expected=state, observed=state,
    )  # fmt: skip


def test_each_promise_that_was_not_seen_is_named() -> None:
    assert unseen(DRIVERS["kueue"], Row(driver="kueue")) == [
        "Preempt", "Scale", "dry run", "rollback", "gang", "effect",
    ]  # fmt: skip
    seen = Row(
        driver="kueue", verbs={"Preempt": (1, 1), "Scale": (0, 1)}, planned=1, gang=(1, 1), rollback=(0, 1),
        effect=(1, 1),
    )  # fmt: skip
    assert unseen(DRIVERS["kueue"], seen) == ["Scale", "rollback"]
    assert unseen(DRIVERS["inventory"], Row(driver="inventory", planned=1)) == []


def test_a_run_is_judged_by_all_its_tests_and_by_the_servers_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in {name for names in NEEDS.values() for name in names}:
        monkeypatch.delenv(variable, raising=False)
    state = SubjectState(replicas=0, ready=0, nodes={"a": ""})
    for i in range(2):  # two tests with a decision of one id
        stop = preempt(before=1, after=0, victims=("a",))
        plan = scale("plan", before=0, after=1)
        seen = Seen("docker", [stop, plan], [outcome(stop, "done", state), outcome(plan, "planned", state)])
        (tmp_path / f"docker-{i}.json").write_bytes(msgspec.json.encode(seen))
    assert main(tmp_path) == 1
    printed = capsys.readouterr().out
    assert "docker | workloads | Preempt 2/2, Scale | driver: 2 | yes: 2 of 2 stops | platform: 2 wanted" in printed
    assert "docker: promised and never seen: Scale\n" in printed
    assert "simulated: promised and never seen: Check, Migrate, Preempt, Scale, dry run, victims, effect" in printed
    assert "slurm" not in printed, "its tests had no server"
    monkeypatch.setenv("FLYBALL_SLURM", "here")
    assert main(tmp_path) == 1
    assert "slurm: promised and never seen" in capsys.readouterr().out
