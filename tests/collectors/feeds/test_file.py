"""Curves from files and folders."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.collectors.feeds.feed_server import NOW_NS, S, iso

from flyball_collectors.feeds import FeedError
from flyball_collectors.feeds.file import FileFeed
from flyball_collectors.feeds.parameters import FileFeedParameters

HOUR_NS = 3600 * S
EARLIER_NS = NOW_NS - 600 * S


def feed(path: Path, **more: Any) -> FileFeed:
    return FileFeed(FileFeedParameters(zone="DE", path=str(path), **more))


def write(path: Path, text: str, mtime_ns: int = EARLIER_NS) -> Path:
    path.write_text(text)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def csv_of(values: list[Any], header: str = "time,value") -> str:
    return "\n".join([header, *(f"{iso(NOW_NS + i * HOUR_NS)},{v}" for i, v in enumerate(values))]) + "\n"


def test_csv(tmp_path: Path) -> None:
    path = write(tmp_path / "de.csv", csv_of([300, 250.5, 200]))
    (signal,) = feed(path).fetch(NOW_NS)
    assert (signal.p50, signal.step_s, signal.start_ns) == ((300.0, 250.5, 200.0), 3600.0, NOW_NS)
    assert (signal.published_ns, signal.kind, signal.source) == (EARLIER_NS, "carbon_intensity", "file")


def test_csv_with_quantiles_other_columns_gaps_and_a_unit(tmp_path: Path) -> None:
    rows = ["100,90,110,x", ",,,x", "200,180,220,x", "220,200,240,x"]
    path = write(tmp_path / "p.csv", csv_of(rows, "Time, value,P10,p90,comment"))
    prices = feed(path, kind="electricity_price", scale=0.001)
    (signal,) = prices.fetch(NOW_NS)
    assert signal.p50 == pytest.approx((0.2, 0.22))
    assert signal.p10 == pytest.approx((0.18, 0.2))
    assert signal.p90 == pytest.approx((0.22, 0.24))
    assert (signal.kind, prices.left_out) == ("electricity_price", 2)
    prices.fetch(NOW_NS + S)
    assert prices.left_out == 2


def test_what_was_issued_before_its_slots_is_a_forecast(tmp_path: Path) -> None:
    text = csv_of([300, 250, 200])
    assert feed(write(tmp_path / "a.csv", text)).fetch(NOW_NS)[0].forecast
    written_ns = NOW_NS + 2 * HOUR_NS
    assert not feed(write(tmp_path / "b.csv", text, written_ns)).fetch(written_ns)[0].forecast


def test_json_with_its_own_time_of_issue(tmp_path: Path) -> None:
    data = [{"time": NOW_NS // S + i * 900, "value": v, "p10": v - 1, "p90": v + 1} for i, v in enumerate((5, 6))]
    path = write(tmp_path / "a.json", json.dumps({"published": iso(NOW_NS - HOUR_NS), "data": data}))
    (signal,) = feed(path).fetch(NOW_NS)
    assert (signal.p50, signal.p10, signal.p90, signal.step_s) == ((5.0, 6.0), (4.0, 5.0), (6.0, 7.0), 900.0)
    assert signal.published_ns == NOW_NS - HOUR_NS
    write(path, json.dumps([{"time": iso(NOW_NS), "value": 7}]))
    assert feed(path, step_s=3600.0).fetch(NOW_NS)[0].p50 == (7.0,)


@given(st.lists(st.integers(0, 5000), min_size=2, max_size=50))
def test_both_formats_report_the_same(tmp_path_factory: pytest.TempPathFactory, values: list[int]) -> None:
    folder = tmp_path_factory.mktemp("feeds")
    rows = [{"time": iso(NOW_NS + i * HOUR_NS), "value": v} for i, v in enumerate(values)]
    reported = [
        feed(write(folder / "x.csv", csv_of(values))).fetch(NOW_NS),
        feed(write(folder / "x.json", json.dumps(rows))).fetch(NOW_NS),
    ]
    assert reported[0] == reported[1]
    assert reported[0][0].p50 == tuple(values)


def test_the_window_moves_with_time_and_the_file_is_read_again_only_when_it_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "de.csv", csv_of([300, 250, 200]))
    source = feed(path)
    source.fetch(NOW_NS)
    write(path, csv_of([999, 999, 999]))  # same size and time: not looked at
    assert source.fetch(NOW_NS + HOUR_NS)[0].p50 == (250.0, 200.0)
    write(path, csv_of([1, 2, 3]), EARLIER_NS + S)
    assert source.fetch(NOW_NS + HOUR_NS)[0].p50 == (2.0, 3.0)
    with pytest.raises(FeedError, match="none of the values is of now or later; check that the source is kept up"):
        source.fetch(NOW_NS + 3 * HOUR_NS)


def test_the_newest_file_of_a_folder_counts(tmp_path: Path) -> None:
    source = feed(tmp_path)
    with pytest.raises(FeedError, match=r"holds no \*.csv or \*.json"):
        source.fetch(NOW_NS)
    write(tmp_path / "a.csv", csv_of([1, 1]), EARLIER_NS)
    write(
        tmp_path / "b.json",
        json.dumps([{"time": iso(NOW_NS + i * HOUR_NS), "value": 2} for i in (0, 1)]),
        EARLIER_NS - S,
    )
    write(tmp_path / ".half.csv", "time,va", EARLIER_NS + S)
    write(tmp_path / "notes.txt", "no", EARLIER_NS + S)
    assert source.fetch(NOW_NS)[0].p50 == (1.0, 1.0)
    os.utime(tmp_path / "b.json", ns=(NOW_NS, NOW_NS))
    assert source.fetch(NOW_NS)[0].p50 == (2.0, 2.0)


@pytest.mark.parametrize(
    ("name", "text", "reported"),
    [
        ("a.csv", "", "no column 'time'; the header must be"),
        ("a.csv", "time;value\n", "no column 'time'"),
        ("a.csv", "time,price\n", "no column 'value'"),
        ("a.csv", csv_of(['"1,5"', 2]), "line 2: value: '1,5' is no number; write e.g. 312.5"),
        ("a.csv", "time,value\n01/03/2026 12:00,5\n", "row 1: time: '01/03/2026 12:00' is no ISO 8601 time"),
        ("a.csv", "time,value\n2026-03-01T12:00,5\n", "row 1: time: '2026-03-01T12:00' has no offset from UTC"),
        ("a.csv", "time,value\n2026-03-01T12:00Z,5\n", "do not show how long a slot is .*; set step_s"),
        ("a.csv", "time,value\n" + "9" * 400 + ",5\n", "is out of range; a number is seconds since 1970"),
        ("a.csv", 'time,value\n"2026', "not CSV in UTF-8"),
        ("a.json", "[{", "not whole JSON"),
        ("a.json", '{"rows": []}', "missing required field `data`"),
        ("a.json", '[{"time": 1, "value": "5"}]', r"\$\[0\]\.value: expected `float \| null`, got `str`"),
        ("a.json", '[{"time": -1, "value": 5}]', "row 1: time: -1 is out of range"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, name: str, text: str, reported: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(FeedError, match=reported) as caught:
        feed(path).fetch(NOW_NS)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match=r"none.csv: cannot be read: No such file or directory; check path"):
        feed(tmp_path / "none.csv").fetch(NOW_NS)


@given(st.binary(max_size=200), st.sampled_from(["x.csv", "x.json"]))
def test_any_bytes_are_a_curve_or_a_feed_error(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, name: str
) -> None:
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(body)
    os.utime(path, ns=(EARLIER_NS, EARLIER_NS))
    with pytest.raises(FeedError):  # no random bytes are a curve
        feed(path).fetch(NOW_NS)
