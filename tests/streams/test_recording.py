"""A recording gives back what went in, in one order, or says what is wrong with the file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.errors import DecodeError, RecordingError
from flyball_contracts.frame import decode_frame, make_frame
from flyball_contracts.metrics import HOST
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Inventory, NodeEvent, Signal, WorkloadSpec
from flyball_contracts.topics import DEMAND, SIGNALS, TELEMETRY, TOPICS
from flyball_streams.recording import FORMAT, SOURCES, RecordedMessage, Recording, RecordingWriter, event_time_ns
from flyball_streams.recording.format import META_FORMAT, SCHEMA, order_of
from flyball_streams.recording.replayer import shift

S = 1_000_000_000
FUNCTION = [HealthCheck.function_scoped_fixture]

raw = st.none() | st.binary(max_size=40)
times = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5 * S)
rows = st.builds(
    RecordedMessage,
    topic=st.sampled_from([*TOPICS, "another"]),
    partition=st.integers(0, 3),
    offset=st.integers(0, 2**40),
    time_ns=times,
    timestamp_ms=st.integers(-1, 2**40),
    key=raw,
    value=raw,
    headers=st.lists(st.tuples(st.text(max_size=8), raw), max_size=3),
)
recordings = st.lists(rows, min_size=1, max_size=25, unique_by=lambda m: (m.topic, m.partition, m.offset))


def write(path: Path, messages: list[RecordedMessage], run_bytes: int = 1 << 20) -> Path:
    with RecordingWriter(path, made_by="test", run_bytes=run_bytes) as writer:
        for message in messages:
            writer.append(message)
    return path


def read(path: Path) -> list[RecordedMessage]:
    return [message for batch in Recording.open(path).messages() for message in batch]


def some(count: int = 300) -> list[RecordedMessage]:
    return [
        RecordedMessage(TELEMETRY.name, 0, i, i * S, i * 1000, b"node", bytes([i % 256]) * 50, [("h", b"v")])
        for i in range(count)
    ]


def frame(time_ns: int) -> Message:
    values = np.full((1, len(HOST)), 0.5, np.float32)
    counts = {"epoch": 1, "seq": 3, "period_ns": S, "inventory_epoch": 1}
    return frame_message(make_frame(values, schema=HOST.schema, node="n", boot_id="b", time_ns=time_ns, **counts))


@settings(deadline=None, suppress_health_check=FUNCTION)
@given(messages=recordings, run_bytes=st.sampled_from([1, 2000, 1 << 20]))
def test_what_goes_in_comes_out_in_event_order(tmp_path: Path, messages: list[RecordedMessage], run_bytes: int) -> None:
    path = write(tmp_path / "r.parquet", messages, run_bytes)
    assert read(path) == sorted(messages, key=order_of)
    recording = Recording.open(path)
    assert recording.rows == len(messages)
    assert (recording.from_ns, recording.to_ns) == (min(m.time_ns for m in messages), max(m.time_ns for m in messages))
    assert recording.topics() == {t: sum(m.topic == t for m in messages) for t in sorted({m.topic for m in messages})}
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.parquet"]


def test_a_tick_plays_what_nodes_are_before_what_they_say_and_keeps_a_partition_in_its_own_order() -> None:
    inside = [RecordedMessage(t, 0, 0, 7 * S + 500 - i, 0, None, None, []) for i, t in enumerate(reversed(SOURCES))]
    late = [RecordedMessage(TELEMETRY.name, 0, offset, 7 * S - offset, 0, None, None, []) for offset in (1, 2)]
    derived = RecordedMessage(DEMAND.name, 0, 0, 7 * S, 0, None, None, [])
    ordered = sorted([derived, *inside, *late], key=order_of)
    assert [m.topic for m in ordered if m.time_ns >= 7 * S] == [*SOURCES, DEMAND.name]
    assert [m.offset for m in ordered if m.time_ns < 7 * S] == [1, 2]  # though the second is the older event


def test_made_messages_get_the_partition_of_their_key_and_the_next_offset(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    keys = [b"n0", b"n1", b"n0", b"n2", b"n0"]
    with RecordingWriter(path, made_by="test") as writer:
        for i, key in enumerate(keys):
            writer.add(Message(TELEMETRY.name, key, b"", []), i * S)
    found = read(path)
    assert [m.partition for m in found] == [partition_of(key, TELEMETRY.partitions) for key in keys]
    for partition in {m.partition for m in found}:
        assert [m.offset for m in found if m.partition == partition] == list(
            range(sum(m.partition == partition for m in found))
        )
    assert [m.timestamp_ms for m in found] == [i * 1000 for i in range(len(keys))]


def test_batches_are_bounded(tmp_path: Path) -> None:
    big = [m._replace(value=bytes(1 << 20)) for m in some(40)]
    batches = list(Recording.open(write(tmp_path / "r.parquet", big, run_bytes=3 << 20)).messages())
    assert max(len(batch) for batch in batches) <= 4
    assert sum(len(batch) for batch in batches) == 40


def test_a_crash_leaves_no_file(tmp_path: Path) -> None:
    def crash() -> None:
        with RecordingWriter(tmp_path / "r.parquet", made_by="test", run_bytes=1) as writer:
            writer.append(some(1)[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"r\.parquet: not written, because there was no message"):
        write(tmp_path / "r.parquet", [])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"no/r\.parquet: cannot be written"):
        RecordingWriter(tmp_path / "no" / "r.parquet", made_by="test")


def test_a_time_beyond_64_bits_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="64 bits"):
        write(tmp_path / "r.parquet", [some(1)[0]._replace(time_ns=2**63)])


def bad_files(folder: Path) -> Iterator[tuple[str, Path, str]]:
    good = write(folder / "good.parquet", some())
    table, metadata = pl.read_parquet(good), pl.read_parquet_metadata(good)
    kept = {k: v for k, v in metadata.items() if k.startswith("flyball.")}

    def make(name: str, frame: pl.DataFrame, meta: dict[str, str]) -> Path:
        frame.write_parquet(folder / name, metadata=meta)
        return folder / name

    yield "missing", folder / "none.parquet", "there is no such file; make one with 'flyball record'"
    yield "folder", folder, "is not a file"
    text = folder / "text.parquet"
    text.write_text("not Parquet at all, but long enough for a footer")
    yield "text", text, "is not a whole Parquet file"
    nothing = folder / "nothing.parquet"
    nothing.write_bytes(b"")
    yield "no bytes", nothing, "is not a whole Parquet file"
    short = folder / "short.parquet"
    short.write_bytes(good.read_bytes()[:-200])
    yield "cut short", short, "is not a whole Parquet file"
    yield "other Parquet", make("other.parquet", table, {}), "is a Parquet file but not a recording"
    future = {**kept, META_FORMAT: str(FORMAT + 1)}
    yield "future", make("future.parquet", table, future), "by a newer Flyball; this one reads up to 1: upgrade"
    yield "odd version", make("odd.parquet", table, {**kept, META_FORMAT: "x"}), "which never existed"
    yield "no column", make("column.parquet", table.drop("offset"), kept), "has no column 'offset'"
    typed = table.with_columns(pl.col("time_ns").cast(pl.Float64()))
    yield "wrong type", make("type.parquet", typed, kept), "column 'time_ns' is Float64, not Int64"
    yield "empty", make("empty.parquet", table.clear(), kept), "holds no messages"
    span = {k: v for k, v in kept.items() if k != "flyball.from_ns"}
    yield "no span", make("span.parquet", table, span), "has no number flyball.from_ns"


def test_each_kind_of_bad_file_is_named_with_its_remedy(tmp_path: Path) -> None:
    for name, path, says in bad_files(tmp_path):
        with pytest.raises(RecordingError) as caught:
            Recording.open(path)
        assert str(caught.value).startswith(f"{path}: "), name
        assert says in str(caught.value), name


def test_a_file_out_of_order_is_an_error(tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet", some())
    kept = {k: v for k, v in pl.read_parquet_metadata(good).items() if k.startswith("flyball.")}
    pl.read_parquet(good).reverse().write_parquet(tmp_path / "r.parquet", metadata=kept)
    with pytest.raises(RecordingError, match="not in event order"):
        read(tmp_path / "r.parquet")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a recording."""
    return write(tmp_path_factory.mktemp("whole") / "r.parquet", some()).read_bytes()


@settings(max_examples=60, deadline=None, suppress_health_check=FUNCTION)
@given(data=st.data())
def test_a_cut_file_is_never_read_as_whole(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(whole) - 1))
    (tmp_path / "r.parquet").write_bytes(whole[:cut])
    with pytest.raises(RecordingError):
        read(tmp_path / "r.parquet")


@settings(max_examples=100, deadline=None, suppress_health_check=FUNCTION)
@given(data=st.data())
def test_damage_gives_rows_or_the_error_and_nothing_else(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole)
    start = data.draw(st.integers(0, len(damaged) - 1))
    damaged[start : start + 16] = data.draw(st.binary(min_size=16, max_size=16))
    (tmp_path / "r.parquet").write_bytes(damaged)
    with contextlib.suppress(RecordingError):
        read(tmp_path / "r.parquet")


def test_event_time_is_the_messages_own_where_it_can_be_read() -> None:
    event = NodeEvent(id="e", node="n", time_ns=5 * S + 1, kind="xid")
    sent = record_message(event, "/test")
    assert event_time_ns(sent.topic, sent.value, sent.headers, 77) == (5 * S + 1, True)
    telemetry = frame(9 * S)
    assert event_time_ns(telemetry.topic, telemetry.value, [], 77) == (9 * S, True)
    assert event_time_ns(TELEMETRY.name, b"broken", [], 77) == (77_000_000, False)
    assert event_time_ns(SIGNALS.name, None, sent.headers, 77) == (77_000_000, False)


def test_shift_moves_instants_and_nothing_else() -> None:
    by = -1234 * S

    def moved(message: Message, time_ns: int) -> tuple[RecordedMessage, RecordedMessage]:
        before = RecordedMessage(
            message.topic, 1, 2, time_ns, 9_000_000, message.key, message.value, [*message.headers, ("x", None)]
        )
        return before, shift(before, by)

    before, after = moved(frame(5000 * S), 5000 * S)
    old, new = decode_frame(before.value or b""), decode_frame(after.value or b"")
    assert (new.time_ns, new.period_ns, new.read_ns, new.block) == (3766 * S, old.period_ns, old.read_ns, old.block)
    assert after.timestamp_ms == before.timestamp_ms
    spec = WorkloadSpec(workload="w", cell="c", time_ns=2000 * S, kind="batch", deadline_ns=8000 * S, duration_s=60.0)
    curve = Signal(
        zone="z", kind="carbon_intensity", published_ns=3000 * S, start_ns=4000 * S, step_s=900.0, p50=(1.0,)
    )
    inventory = Inventory(node="n", cell="c", epoch=1, time_ns=2000 * S)
    for record in (spec, curve, inventory):
        before, after = moved(record_message(record, "/s"), 2000 * S)
        instants = {n: getattr(record, n) + by for n in record.__struct_fields__ if n.endswith("_ns")}
        expected = record_message(msgspec.structs.replace(record, **instants), "/s")
        assert after.value == expected.value
        assert after.headers == [*expected.headers, ("x", None)]
        assert (after.key, after.offset, after.time_ns) == (before.key, 2, 766 * S)
    with pytest.raises(DecodeError):
        shift(some(1)[0], by)


def test_schema_is_the_documented_one() -> None:
    assert list(SCHEMA) == ["topic", "partition", "offset", "time_ns", "timestamp_ms", "key", "headers", "value"]
