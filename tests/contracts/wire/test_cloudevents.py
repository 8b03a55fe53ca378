import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st
from tests.contracts.strategies import samples

from flyball_contracts.cloudevents import event_headers, event_kind, header, rfc3339
from flyball_contracts.codec import record_message
from flyball_contracts.ids import MAX_TIME_NS


@given(st.integers(0, MAX_TIME_NS))
def test_a_time_keeps_its_nanoseconds(time_ns: int) -> None:
    text = rfc3339(time_ns)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", text)
    seconds = datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    assert int(seconds.timestamp()) * 10**9 + int(text[20:29]) == time_ns


@pytest.mark.parametrize("name", samples())
def test_binary_mode_has_every_required_attribute_once(name: str) -> None:
    for record in samples()[name]:
        headers = record_message(record, "/worker/1").headers
        names = [key for key, _ in headers]
        assert names == ["content-type", "ce_specversion", "ce_type", "ce_source", "ce_id", "ce_time"]
        found = {key: value.decode("utf-8") for key, value in headers}
        assert found["content-type"] == "application/json"
        assert found["ce_specversion"] == "1.0"
        assert found["ce_type"] == f"io.flyball.{name}"
        assert found["ce_source"] == "/worker/1"
        assert found["ce_id"]


def test_the_last_of_equal_headers_wins_and_bad_bytes_are_replaced() -> None:
    assert header([("a", b"1"), ("b", b"x"), ("a", b"2")], "a") == "2"
    assert header([("a", b"\xff")], "a") == "\ufffd"
    assert header([("a", b"1"), ("a", None)], "a") is None
    assert header(None, "a") is None


def test_only_our_own_types_are_taken() -> None:
    assert event_kind(event_headers("Scale", "id", "/x", 0)) == "Scale"
    assert event_kind([("ce_type", b"io.flyballs.Scale")]) is None
    assert event_kind([("CE_TYPE", b"io.flyball.Scale")]) is None
    assert event_kind([]) is None
