"""Numbers and decisions as words."""

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from tests.dashboard import scene

from flyball_contracts.records import Effect, Evidence, Portion, Resources, Scale
from flyball_streams.dashboard import text


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, text.UNKNOWN), (float("nan"), text.UNKNOWN), (0, "0"), (0.0123456, "0.0123"), (-3.5, "\u22123.5"),
     (1234.6, "1,235"), (25_000, "25 k"), (3.2e9, "3.2 G")],
)  # fmt: skip
def test_numbers(value: float | None, words: str) -> None:
    assert text.number(value) == words


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_is_short(value: float) -> None:
    words = text.number(value)
    assert words
    assert len(words) < 24 or abs(value) >= 1e15


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(71.0, "Cel", "71 °C"), (0.5, "1", "0.5"), (3.0, "{request}/s", "3 request/s"), (14.0, "{error}", "14")],
)
def test_quantities(value: float, unit: str, words: str) -> None:
    assert text.quantity(value, unit) == words


def test_evidence_says_what_was_expected() -> None:
    item = Evidence(name="hw.temperature{sensor=gpu}", value=91.0, unit="Cel", expected=64.0)
    assert text.shown_evidence(item) == "temperature (gpu) 91 °C, expected 64 °C"


def test_changes_and_outcomes() -> None:
    decisions = scene.decisions()
    assert [text.change(d) for d in decisions[:3]] == [
        "6 → 9 replicas",
        "→ gpu-0046",
        "2 → 0 replicas until 19 Mar 06:03",
    ]
    assert text.outcome_text(None) == ("waiting", "awaiting outcome")


def test_resizing_says_from_what_to_what() -> None:
    wanted = Resources(cpu=1.5, memory_bytes=24 * 10**9, gpu_profile="1g.10gb")
    before = Resources(cpu=8.0, memory_bytes=64 * 10**9, gpu_profile="")
    told = "CPU 8 → 1.5, memory 64 GB → 24 GB, whole GPU → 1g.10gb"
    assert text.resize(wanted, before) == told
    assert text.resize(Resources(cpu=2.0), None) == f"CPU {text.UNKNOWN} → 2"
    decision = next(d for d in scene.decisions() if isinstance(d, Scale))
    decision = replace(decision, resources=wanted, resources_before=before)
    assert text.change(decision) == told


def test_a_mix_says_where_replicas_run() -> None:
    mix = tuple(Portion(offer=name, replicas_before=was, replicas=n) for name, was, n in (("od", 4, 1), ("spot", 3, 3)))
    assert text.mixture(mix) == "4 → 1 on od, 3 on spot"
    decision = next(d for d in scene.decisions() if isinstance(d, Scale))
    decision = replace(decision, replicas_before=7, replicas=4, mix=mix, resources=None, power_limit_w=None)
    assert text.change(decision) == "7 → 4 replicas (4 → 1 on od, 3 on spot)"


def test_effects_say_whether_they_are_welcome() -> None:
    found = text.effects(Effect(cost_usd_per_hour=-2.0, carbon_g_per_hour=1500.0, slo=-0.01))
    assert found == [("cost", "\u22122 $/h", True), ("carbon", "+1.5 kg CO₂e/h", False), ("SLO", "\u22121 pp", False)]


def test_clock_and_span() -> None:
    assert text.clock(scene.T0) == "13:00:00"
    assert text.clock(scene.T0, day=True) == "18 Mar 13:00"
    assert text.clock(None) == text.UNKNOWN
    assert text.span(5400) == "1.5 h"
    assert text.span(40) == "40 s"
