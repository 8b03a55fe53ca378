"""Numbers as words."""

import pytest
from hypothesis import given, strategies as st

from flyball_contracts.records import Evidence
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


def test_evidence_reports_what_was_expected() -> None:
    item = Evidence(name="hw.temperature{sensor=gpu}", value=91.0, unit="Cel", expected=64.0)
    assert text.shown_evidence(item) == "temperature (gpu) 91 °C, expected 64 °C"


def test_counts_with_four_digits_and_more_stay_readable() -> None:
    assert [text.count(n) for n in (7, 1_234, 10_000, 1_234_567)] == ["7", "1,234", "10,000", "1.23 M"]
    assert text.plural(1, "node") == "1 node"
    assert text.plural(1_250, "node") == "1,250 nodes"


def test_span() -> None:
    assert text.span(5400) == "1.5 h"
    assert text.span(40) == "40 s"
