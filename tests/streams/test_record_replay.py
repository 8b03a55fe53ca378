"""What is replayed can be recorded again, and is the same."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.brokers.embedded import EmbeddedBroker

from flyball_contracts.codec import Message, decode_message, frame_message, record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import RecordingError, TransportError
from flyball_contracts.frame import Frame, make_frame
from flyball_contracts.kafka import producer_settings
from flyball_contracts.metrics import GPU
from flyball_contracts.records import DemandTick, Device, Inventory, NodeEvent, Signal, Tick, WorkloadSpec
from flyball_contracts.topics import DEMAND, TELEMETRY, TOPICS
from flyball_streams.recording import SOURCES, RecordedMessage, Recording, RecordingWriter, record, replay

Start = Callable[..., EmbeddedBroker]
S = 1_000_000_000
START_NS = 1_700_000_000 * S
NODES = 5
TICKS = 30
ALL = {name: 3 for name in TOPICS}
NOWHERE = KafkaConfig(bootstrap="127.0.0.1:1", client={"log_level": "0"})


def story() -> Iterable[tuple[Message, int]]:
    """A few nodes, for a while: every kind of source record, and a derived one."""
    spec = WorkloadSpec(workload="w", cell="c", time_ns=START_NS, kind="inference")
    yield record_message(spec, "/test"), START_NS
    curve = Signal(
        zone="z", kind="carbon_intensity", published_ns=START_NS, start_ns=START_NS, step_s=900.0, p50=(1.0,)
    )
    yield record_message(curve, "/test"), START_NS
    for n in range(NODES):
        device = Device(id=f"n{n}/0", model="x", memory_bytes=1)
        node = Inventory(node=f"n{n}", cell="c", epoch=1, time_ns=START_NS, boot_id="b", devices=(device,))
        yield record_message(node, "/test"), START_NS
    for t in range(TICKS):
        time_ns = START_NS + t * S
        for n in range(NODES):
            values = np.full((1, len(GPU)), np.nan, np.float32)
            values[0, 0] = (t + n) / 100
            counts = {"epoch": 1, "seq": t, "period_ns": S, "inventory_epoch": 1}
            frame = make_frame(values, schema=GPU.schema, node=f"n{n}", boot_id="b", time_ns=time_ns, **counts)
            yield frame_message(frame), time_ns
    event = NodeEvent(id="e", node="n0", time_ns=START_NS + 3 * S, kind="xid", code=79)
    yield record_message(event, "/test"), START_NS + 3 * S
    tick = Tick(index=1, period_ns=S)
    yield record_message(DemandTick(cell="c", source="s", tick=tick, partition=0), "/test"), START_NS + 4 * S


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "story.parquet"
    with RecordingWriter(path, made_by="test") as writer:
        for message, time_ns in story():
            writer.add(message, time_ns)
    return path


def done() -> threading.Event:
    """A stop that has come already: the recorder then takes what the broker holds, and ends."""
    event = threading.Event()
    event.set()
    return event


def by_key(path: Path) -> dict[tuple[str, bytes | None], list[tuple[object, ...]]]:
    """What each key of each topic said, in its order; partitions and offsets are the broker's affair."""
    published: dict[tuple[str, bytes | None], list[tuple[object, ...]]] = defaultdict(list)
    for batch in Recording.open(path).messages():
        for m in batch:
            if m.topic in SOURCES:
                published[m.topic, m.key].append((m.time_ns, m.timestamp_ms, m.value, m.headers))
    return dict(published)


def test_replay_then_record_gives_the_same_messages(tmp_path: Path, recording: Path, embedded_broker: Start) -> None:
    kafka = KafkaConfig(bootstrap=embedded_broker(ALL).bootstrap)
    seen: list[tuple[int, int]] = []
    played = replay(recording, kafka, stop=threading.Event(), progress=lambda d, n: seen.append((d, n)))
    assert played.finished
    assert (played.messages, played.derived, played.not_rebased) == (NODES * (TICKS + 1) + 3, 1, 0)
    assert seen[-1] == (played.messages + 1, played.messages + 1)
    taken = record(kafka, tmp_path / "again.parquet", stop=done())
    assert (taken.messages, taken.undated, taken.lost, taken.absent) == (played.messages, 0, 0, ())
    assert taken.complete
    assert taken.topics == played.topics
    assert by_key(tmp_path / "again.parquet") == by_key(recording)
    assert DEMAND.name not in Recording.open(tmp_path / "again.parquet").topics()


def test_a_replay_that_the_broker_would_think_too_old_is_reported(
    recording: Path, embedded_broker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = KafkaConfig(bootstrap=embedded_broker(ALL).bootstrap)
    replay(recording, kafka, stop=threading.Event(), rebase_to_ns=time.time_ns())
    assert caplog.messages == []
    replay(recording, kafka, stop=threading.Event())
    (reported,) = caplog.messages
    assert "longer ago than the 6 h for which topics keep telemetry" in reported
    assert "--rebase" in reported


def test_a_rebased_replay_is_the_same_story_at_another_time(
    tmp_path: Path, recording: Path, embedded_broker: Start
) -> None:
    kafka = KafkaConfig(bootstrap=embedded_broker(ALL).bootstrap)
    later = START_NS + 1_000_000 * S
    began_ms = time.time_ns() // 10**6
    played = replay(recording, kafka, stop=threading.Event(), rebase_to_ns=later)
    assert (played.from_ns, played.not_rebased) == (later, 0)
    ended_ms = time.time_ns() // 10**6
    again = tmp_path / "again.parquet"
    record(kafka, again, stop=done())
    before, after = by_key(recording), by_key(again)
    assert before.keys() == after.keys()
    for key, old in before.items():
        assert [m[0] for m in after[key]] == [int(str(m[0])) + later - START_NS for m in old]
        # What the broker reckons the age of a message from: a long recording must not be too old as soon as it is sent.
        assert all(began_ms <= int(str(m[1])) <= ended_ms for m in after[key])
    blocks = [[frame.block for frame in frames(path)] for path in (recording, again)]
    assert blocks[0] == blocks[1]


def frames(path: Path) -> list[Frame]:
    found: list[Frame] = []
    for batch in Recording.open(path).messages():
        for m in batch:
            decoded = decode_message(m.topic, m.value, m.headers)
            if isinstance(decoded, Frame):
                found.append(decoded)
    return sorted(found, key=lambda frame: (frame.time_ns, frame.node))


def test_what_cannot_be_read_is_played_as_it_is_and_counted(tmp_path: Path, embedded_broker: Start) -> None:
    kafka = KafkaConfig(bootstrap=embedded_broker(ALL).bootstrap)
    first = tmp_path / "first.parquet"
    odd = [b"not a frame", None]
    with RecordingWriter(first, made_by="test") as writer:
        for i, value in enumerate(odd):
            writer.append(
                RecordedMessage(TELEMETRY.name, 0, i, START_NS, START_NS // 10**6, b"k", value, [("a", None)])
            )
    began_ms = time.time_ns() // 10**6
    played = replay(first, kafka, stop=threading.Event(), rebase_to_ns=START_NS + S)
    assert (played.messages, played.not_rebased) == (2, 2)
    taken = record(kafka, tmp_path / "again.parquet", stop=done(), topics=[TELEMETRY.name])
    assert taken.undated == 2
    (batch,) = Recording.open(tmp_path / "again.parquet").messages()
    assert [(m.value, m.headers) for m in batch] == [(value, [("a", None)]) for value in odd]
    assert all(m.timestamp_ms >= began_ms for m in batch)


def test_a_paced_replay_waits_and_can_be_stopped(tmp_path: Path, embedded_broker: Start) -> None:
    kafka = KafkaConfig(bootstrap=embedded_broker(ALL).bootstrap)
    slow = tmp_path / "slow.parquet"
    first, second = [m for m, _ in story()][:2]
    with RecordingWriter(slow, made_by="test") as writer:
        writer.add(first, START_NS)
        writer.add(second, START_NS + 3600 * S)
    stop, received = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        playing = pool.submit(replay, slow, kafka, stop=stop, speed=1.0)
        hearing = pool.submit(
            record, kafka, tmp_path / "again.parquet", stop=stop, progress=lambda n, _: received.set() if n else None
        )
        try:
            assert received.wait(30)
            assert not playing.done()
        finally:
            stop.set()
        report = playing.result(30)
        assert (report.messages, report.finished) == (1, False)
        assert hearing.result(60).messages == 1


def test_a_paced_replay_does_not_wait_for_what_was_declared_long_before(tmp_path: Path, embedded_broker: Start) -> None:
    kafka = KafkaConfig(bootstrap=embedded_broker(ALL).bootstrap)
    path, old_ns = tmp_path / "declared.parquet", START_NS - 30 * 86_400 * S
    spec = WorkloadSpec(workload="old", cell="c", time_ns=old_ns, kind="inference")
    with RecordingWriter(path, made_by="test") as writer:
        writer.add(record_message(spec, "/test"), old_ns)
        for message, time_ns in story():
            writer.add(message, time_ns)
    assert replay(path, kafka, stop=threading.Event(), speed=TICKS / 1.0).finished  # not after hours


def test_recording_from_now_on_leaves_out_what_was_there(
    tmp_path: Path, recording: Path, embedded_broker: Start
) -> None:
    kafka = KafkaConfig(bootstrap=embedded_broker(ALL).bootstrap)
    replay(recording, kafka, stop=threading.Event())
    stop, ready = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(
            record,
            kafka,
            tmp_path / "new.parquet",
            stop=stop,
            topics=[TELEMETRY.name],
            from_start=False,
            progress=lambda _done, _all: ready.set(),
        )
        try:
            assert ready.wait(30)
            again = replay(recording, kafka, stop=threading.Event())
        finally:
            stop.set()
        assert taking.result(60).messages == again.topics[TELEMETRY.name] == NODES * TICKS


def test_what_the_broker_has_already_dropped_is_counted(
    tmp_path: Path, recording: Path, embedded_broker: Start
) -> None:
    broker = embedded_broker({**ALL, TELEMETRY.name: 1})
    kafka = KafkaConfig(bootstrap=broker.bootstrap)
    replay(recording, kafka, stop=threading.Event())
    broker.delete_records(TELEMETRY.name, 0, NODES * TICKS - 1)
    taken = record(kafka, tmp_path / "rest.parquet", stop=done(), topics=[TELEMETRY.name, "no.such.topic"])
    assert taken.messages + taken.lost == NODES * TICKS
    assert taken.lost > 0
    assert taken.absent == ("no.such.topic",)


def test_a_broker_that_goes_away_does_not_cost_what_was_recorded(
    tmp_path: Path, recording: Path, embedded_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flyball_streams.recording.recorder._RESPONSE_S", 2.0)
    broker = embedded_broker(ALL)
    kafka = KafkaConfig(bootstrap=broker.bootstrap, client={"log_level": "0"})
    played = replay(recording, kafka, stop=threading.Event())
    stop, received = threading.Event(), threading.Event()

    def note(done: int, _all: int) -> None:
        if done == played.messages:
            received.set()

    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(record, kafka, tmp_path / "r.parquet", stop=stop, progress=note)
        try:
            assert received.wait(30)
            broker.set_down()
        finally:
            stop.set()
        report = taking.result(60)
    assert (report.messages, report.complete) == (played.messages, False)
    assert by_key(tmp_path / "r.parquet") == by_key(recording)


def test_an_absent_broker_is_named(tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_streams.recording.replayer._RESPONSE_S", 0.5)
    monkeypatch.setattr("flyball_streams.recording.recorder._RESPONSE_S", 0.5)
    with pytest.raises(TransportError, match=r"no broker answers at 127\.0\.0\.1:1"):
        replay(recording, NOWHERE, stop=threading.Event())
    with pytest.raises(TransportError, match=r"no broker answers at 127\.0\.0\.1:1"):
        record(NOWHERE, tmp_path / "r.parquet", stop=done())
    assert not (tmp_path / "r.parquet").exists()


def test_wrong_use_is_named(tmp_path: Path, recording: Path, embedded_broker: Start) -> None:
    kafka = KafkaConfig(bootstrap=embedded_broker({TELEMETRY.name: 1}).bootstrap)
    with pytest.raises(ValueError, match="speed is 0"):
        replay(recording, kafka, stop=threading.Event(), speed=0.0)
    with pytest.raises(RecordingError, match="no such file"):
        replay(tmp_path / "none.parquet", kafka, stop=threading.Event())
    with pytest.raises(RecordingError, match="no message to record"):
        record(kafka, tmp_path / "r.parquet", stop=done(), topics=[TELEMETRY.name])
    with pytest.raises(TransportError, match=r"has none of no\.such\.topic"):
        record(kafka, tmp_path / "r.parquet", stop=done(), topics=["no.such.topic"])


def test_a_message_that_the_broker_refuses_is_an_error(recording: Path, embedded_broker: Start) -> None:
    broker = embedded_broker(ALL)
    kafka = KafkaConfig(bootstrap=broker.bootstrap, client={"message.max.bytes": "1000"})
    assert producer_settings(kafka.bootstrap, client_id="x", extra=kafka.client)["message.max.bytes"] == "1000"
    big = recording.with_name("big.parquet")
    with RecordingWriter(big, made_by="test") as writer:
        writer.append(RecordedMessage(TELEMETRY.name, 0, 0, START_NS, 0, b"k", bytes(5000), []))
    with pytest.raises(TransportError, match=TELEMETRY.name):
        replay(big, kafka, stop=threading.Event())
