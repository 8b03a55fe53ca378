import math
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from tests.contracts.strategies import records, sample, samples, snapshots

from flyball_contracts.codec import (
    BINDINGS,
    RECORD_TYPES,
    decode_message,
    decode_record,
    decode_snapshot,
    record_message,
    snapshot_message,
)
from flyball_contracts.deadletter import dead_letter
from flyball_contracts.errors import DecodeError, FlyballError, UnknownSchema
from flyball_contracts.records import DemandTick, Record, Signal, Snapshot
from flyball_contracts.topics import DEAD_LETTERS, OUTCOMES, PROPOSALS, STATE, TOPICS

SAMPLES = samples()


@given(records)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_record_survives_the_wire(record: Record) -> None:
    message = record_message(record, "/test")
    assert message.topic == BINDINGS[type(record)].topic.name
    assert message.key == BINDINGS[type(record)].key(record).encode()
    assert decode_message(message.topic, message.value, message.headers) == record


@given(snapshots)
@settings(max_examples=100, deadline=None)
def test_snapshots_survive_the_wire(snapshot: Snapshot) -> None:
    message = snapshot_message(snapshot)
    key = f"{snapshot.lane}/{snapshot.partition}/{snapshot.part}"
    assert (message.topic, message.key) == (STATE.name, key.encode())
    assert decode_message(message.topic, message.value, message.headers) == snapshot


@pytest.mark.parametrize("name", RECORD_TYPES)
def test_an_old_reader_survives_a_newer_writer(name: str) -> None:
    full, _ = SAMPLES[name]
    message = record_message(full, "/test")
    newer = {**msgspec.json.decode(message.value), "added_later": {"deep": [1, 2]}}
    assert decode_message(message.topic, msgspec.json.encode(newer), message.headers) == full


@pytest.mark.parametrize("name", RECORD_TYPES)
def test_a_record_without_its_optional_fields_has_the_defaults(name: str) -> None:
    _, minimal = SAMPLES[name]
    message = record_message(minimal, "/test")
    wanted = {f.encode_name for f in msgspec.structs.fields(type(minimal)) if f.required}
    sent = msgspec.json.decode(message.value)
    tag = {"type"} & set(sent) if name in ("Scale", "Migrate", "Preempt") else set[str]()
    short = {key: sent[key] for key in wanted | tag}
    assert decode_message(message.topic, msgspec.json.encode(short), message.headers) == minimal


@pytest.mark.parametrize("name", RECORD_TYPES)
def test_each_missing_or_mistyped_field_is_a_decode_error(name: str) -> None:
    full, _ = SAMPLES[name]
    message = record_message(full, "/test")
    sent: dict[str, Any] = msgspec.json.decode(message.value)
    for field in msgspec.structs.fields(type(full)):
        broken: list[dict[str, Any]] = [{**sent, field.encode_name: [[[]]]}]
        if field.required:
            broken.append({key: value for key, value in sent.items() if key != field.encode_name})
        for value in broken:
            with pytest.raises(DecodeError, match=f"{name} on {message.topic}: .*"):
                decode_message(message.topic, msgspec.json.encode(value), message.headers)


@pytest.mark.parametrize("name", RECORD_TYPES)
def test_a_record_on_a_wrong_topic_is_refused(name: str) -> None:
    full, _ = SAMPLES[name]
    message = record_message(full, "/test")
    for topic in TOPICS.values():
        if topic.cloudevents and topic.name != message.topic:
            with pytest.raises(UnknownSchema, match=rf"'{name}' does not belong on {topic.name}"):
                decode_message(topic.name, message.value, message.headers)


def test_what_is_no_record_is_a_decode_error() -> None:
    message = record_message(SAMPLES["Outcome"][0], "/test")
    with pytest.raises(DecodeError, match="no ce_type header of ours"):
        decode_record(OUTCOMES.name, message.value, [])
    with pytest.raises(DecodeError, match="no ce_type header of ours"):
        decode_record(OUTCOMES.name, message.value, None)
    with pytest.raises(DecodeError, match="no ce_type header of ours"):
        decode_record(OUTCOMES.name, message.value, [("ce_type", b"com.example.Outcome")])
    with pytest.raises(UnknownSchema, match="'Idea' does not belong"):
        decode_record(OUTCOMES.name, message.value, [("ce_type", b"io.flyball.Idea")])
    with pytest.raises(DecodeError, match="a tombstone is not a record"):
        decode_record(OUTCOMES.name, None, message.headers)
    with pytest.raises(UnknownSchema, match="not in the topic table"):
        decode_message("flyball.other.v1", message.value, message.headers)
    with pytest.raises(FlyballError):
        decode_message(DEAD_LETTERS.name, b"anything", [])
    with pytest.raises(DecodeError, match="not a snapshot"):
        decode_snapshot(b"\xc1")


def test_times_beyond_what_a_header_can_say_are_refused() -> None:
    message = record_message(SAMPLES["ProposalTick"][0], "/test")
    sent = msgspec.json.decode(message.value)
    for tick in ({"index": 2**62, "period_ns": 2**62}, {"index": -1, "period_ns": 1}, {"index": 1, "period_ns": 0}):
        with pytest.raises(DecodeError):
            decode_record(PROPOSALS.name, msgspec.json.encode({**sent, "tick": tick}), message.headers)
    for time_ns in (-1, 2**63, 10**30):
        outcome = record_message(SAMPLES["Outcome"][0], "/test")
        raw = outcome.value.replace(str(SAMPLES["Outcome"][0].time_ns).encode(), str(time_ns).encode())  # type: ignore[attr-defined]  # pyright: ignore
        with pytest.raises(DecodeError):
            decode_record(OUTCOMES.name, raw, outcome.headers)


def test_demand_goes_to_the_partition_that_it_names_and_all_else_by_key() -> None:
    published: DemandTick = sample(DemandTick, full=True)
    assert record_message(published, "/test").partition == published.partition
    assert record_message(SAMPLES["ProposalTick"][0], "/test").partition is None


def test_a_signal_ends_after_its_last_slot() -> None:
    signal: Signal = sample(Signal, full=True)
    assert signal.end_ns == signal.start_ns + math.floor(len(signal.p50) * signal.step_s * 1e9 + 0.5)


def test_a_dead_letter_keeps_the_message_and_says_why() -> None:
    letter = dead_letter(
        topic="t", partition=3, offset=7, key=None, value=b"\xff", headers=[("h", b"1"), ("n", None)],
        stage="worker", error=DecodeError("broken \ud800" + "x" * 5000),
    )  # fmt: skip
    assert (letter.topic, letter.key, letter.value) == (DEAD_LETTERS.name, b"", b"\xff")
    headers = dict(letter.headers)
    assert headers["h"] == b"1"
    assert headers["n"] == b""
    assert headers["__connect.errors.topic"] == b"t"
    assert headers["__connect.errors.partition"] == b"3"
    assert headers["__connect.errors.offset"] == b"7"
    assert headers["__connect.errors.stage"] == b"worker"
    assert headers["__connect.errors.exception.class.name"] == b"DecodeError"
    assert headers["__connect.errors.exception.message"].startswith(b"broken ?xxx")
    assert len(headers["__connect.errors.exception.message"]) == 2000


@pytest.mark.parametrize(
    ("key", "value", "large", "cut"),
    [
        (10, 1_048_576, 0, {"value": 1_048_576}),
        (10, 500_000, 500_000, {"headers": 500_051}),
        (999_000, 100, 0, {"key": 999_000}),
        (700_000, 850_000, 700_000, {"value": 850_000, "key": 700_000, "headers": 700_051}),
        (10, 880_000, 100, {}),
    ],
)
def test_a_dead_letter_of_a_message_that_is_too_large_is_cut_and_says_so(
    key: int, value: int, large: int, cut: dict[str, int]
) -> None:
    original: list[tuple[str, bytes | None]] = [("a", b"1"), ("large", b"h" * large), ("b", b"23"), ("c", b"")]
    letter = dead_letter(
        topic="t", partition=3, offset=7, key=b"k" * key, value=b"v" * value, headers=original, stage="worker",
        error=DecodeError("\U0001f525" * 2000),
    )  # fmt: skip
    size = len(letter.key) + len(letter.value) + sum(len(name) + len(text) + 10 for name, text in letter.headers)
    assert size <= 900_000
    headers = dict(letter.headers)
    named = {name.split(".")[3]: int(text) for name, text in headers.items() if ".errors.cut." in name}
    assert named == cut
    assert (len(letter.key) < key, len(letter.value) < value) == ("key" in cut, "value" in cut)
    assert [one for one in original if one in letter.headers] == [
        one for one in original if "headers" not in cut or one[0] != "large"
    ]
    reason = headers["__connect.errors.exception.message"].decode()
    assert reason.startswith("\U0001f525" * 2000)
    assert all(f"; its {part} was cut from {before} to " in reason for part, before in cut.items())
    assert reason.count("was cut") == len(cut)


@pytest.mark.parametrize(
    ("field", "value"),
    [("checkpoint_s", -1.0), ("cold_start_s", -0.5), ("gang_size", 0), ("max_replicas", -1), ("duration_s", 0.0),
     ("target_utilization", 1.5), ("gpus_per_replica", 1e13), ("objective", {"delay_s": -2.0})],
)  # fmt: skip
def test_a_specification_out_of_range_is_refused_whoever_sent_it(field: str, value: object) -> None:
    message = record_message(SAMPLES["WorkloadSpec"][1], "/test")
    sent = {**msgspec.json.decode(message.value), field: value}
    with pytest.raises(DecodeError, match=rf"Expected .*\$\.{field}"):
        decode_message(message.topic, msgspec.json.encode(sent), message.headers)
