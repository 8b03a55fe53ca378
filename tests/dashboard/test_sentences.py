"""Decisions, effects and lives as words."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.dashboard.scenes import scene

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Effect, Outcome, Portion, Resources, Scale, SubjectState
from flyball_streams.dashboard import sentences
from flyball_streams.dashboard.preferences import Preferences

PREFERENCES = Preferences()
OUTCOME = Outcome(
    id="o", decision="d", type="Scale", target="c/w", cell="c", workload="w", time_ns=50 * NS_PER_S, status="accepted",
    mode="live", driver="simulated", actuator="actuator-1",
)  # fmt: skip


def test_changes_and_outcomes() -> None:
    decisions = scene.decisions()
    assert [sentences.change(d, PREFERENCES) for d in decisions[:3]] == [
        "6 → 9 replicas",
        "pretrain-llm-5: GPU-0005-3 of gpu-0005 → gpu-0046",
        "2 → 0 replicas until 19 Mar 06:03",
    ]
    assert sentences.outcome_text(None) == ("awaiting", "awaiting outcome")


def test_resizing_reports_from_what_to_what() -> None:
    wanted = Resources(cpu=1.5, memory_bytes=24 * 10**9, gpu_profile="1g.10gb")
    before = Resources(cpu=8.0, memory_bytes=64 * 10**9, gpu_profile="")
    expected = "CPU 8 → 1.5, memory 64 GB → 24 GB, whole GPU → 1g.10gb"
    assert wanted.change(before) == expected
    assert Resources(cpu=2.0).change() == "CPU 2"
    decision = next(d for d in scene.decisions() if isinstance(d, Scale))
    decision = replace(decision, resources=wanted, resources_before=before, replicas=4)
    assert sentences.change(decision, PREFERENCES) == f"{expected} for each of 4 replicas"


def test_an_allocation_reports_where_replicas_run() -> None:
    allocation = tuple(
        Portion(offer=name, replicas_before=was, replicas=n) for name, was, n in (("od", 4, 1), ("spot", 3, 3))
    )
    decision = next(d for d in scene.decisions() if isinstance(d, Scale))
    decision = replace(decision, replicas_before=7, replicas=4, mix=allocation, resources=None, power_limit_w=None)
    assert sentences.change(decision, PREFERENCES) == "7 → 4 replicas, 4 → 1 on od, 3 on spot"


def test_effects_report_whether_they_are_welcome() -> None:
    found = sentences.effects(Effect(cost_usd_per_hour=-2.0, carbon_g_per_hour=1500.0, slo=-0.01))
    assert found == [
        ("cost", "\u22122 $/h", True),
        ("carbon", "+1.5 kgCO₂e/h", False),
        ("requests in time", "\u22121 pp", False),
    ]
    assert sentences.effects(Effect(cost_usd_per_hour=0.0)) == [("cost", "0 $/h", None)]


@pytest.mark.parametrize(
    ("changes", "style", "words"),
    [
        ({"status": "done"}, "done", "done"),
        ({"status": "planned", "mode": "dry_run"}, "planned", "planned, not carried out"),
        ({"status": "done", "mode": "dry_run"}, "planned", "planned, not carried out"),
        ({"status": "accepted", "mode": "dry_run"}, "accepted", "accepted, dry run"),
        ({"status": "refused", "code": "blast_radius"}, "refused", "refused: blast radius"),
        ({"status": "refused", "code": "rate", "mode": "dry_run"}, "refused", "refused: rate, dry run"),
    ],
)
def test_what_was_done_in_dry_run_never_looks_done(changes: dict[str, Any], style: str, words: str) -> None:
    assert sentences.outcome_text(replace(OUTCOME, **changes)) == (style, words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Accepted by actuator-1 for the platform (simulated), 2 s after the decision."),
        ({"status": "running", "operation": "op-7"}, "The platform works on it (op-7), 2 s after the decision."),
        ({"status": "done", "effect_after_s": 41.0}, "Done: the platform shows the effect, 41 s after the decision."),
        (
            {"status": "planned", "mode": "dry_run"},
            "Planned against the real state and not carried out, because the actuator runs dry, "
            "2 s after the decision.",
        ),
        (
            {"status": "refused", "code": "rate", "detail": "four a minute"},
            "Refused by actuator-1 (rate), 2 s after the decision: four a minute.",
        ),
        (
            {"status": "failed", "answer": "no room"},
            "Failed on the platform (simulated), 2 s after the decision: no room.",
        ),
        ({"status": "superseded"}, "Given up for a newer decision about the same subject, 2 s after the decision."),
    ],
)
def test_each_step_of_a_life_is_a_sentence(changes: dict[str, Any], words: str) -> None:
    assert sentences.step(replace(OUTCOME, **changes), 48 * NS_PER_S) == words


def test_expected_and_observed_stand_side_by_side() -> None:
    expected = Effect(cost_usd_per_hour=24.0, carbon_g_per_hour=960.0, slo=0.12)
    observed = Effect(cost_usd_per_hour=22.0, power_w=1500.0)
    assert sentences.effect_rows(expected, observed) == [
        ("cost", "+24 $/h", "+22 $/h"),
        ("carbon", "+0.96 kgCO₂e/h", "not observed"),
        ("power", "not estimated", "+1.5 kW"),
        ("requests in time", "+12 pp", "not observed"),
    ]


def test_states_are_reported_where_any_of_them_knows() -> None:
    before, after = SubjectState(replicas=4, ready=4), SubjectState(replicas=6, nodes={"w-1": ""}, suspended=False)
    assert sentences.state_rows([before, after, None]) == [
        ("replicas asked for", ["4", "6", ""]),
        ("replicas that serve", ["4", "", ""]),
        ("node of w-1", ["", "stopped", ""]),
        ("suspended", ["", "no", ""]),
    ]
