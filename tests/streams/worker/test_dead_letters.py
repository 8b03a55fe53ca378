"""What cannot be read goes to the dead letters with its reason, and stops nothing."""

from collections.abc import Callable

from tests.streams.worker.rig import Rig, Simulated, wait_until

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message
from flyball_contracts.records import Forecast
from flyball_contracts.topics import (
    DEAD_LETTERS,
    DEMAND,
    EVENTS,
    INSIGHTS,
    INVENTORY,
    OUTCOMES,
    PROPOSALS,
    SIGNALS,
    STATE,
    TELEMETRY,
    WORKLOADS,
)

TICKS = 20
STAGES = {
    TELEMETRY.name: "node lane",
    EVENTS.name: "node lane",
    DEMAND.name: "workload lane",
    PROPOSALS.name: "cell lane",
    INVENTORY.name: "tables",
    WORKLOADS.name: "tables",
    SIGNALS.name: "tables",
    OUTCOMES.name: "tables",
    STATE.name: "tables",
}


def broken(topic: str) -> Message:
    """Bytes that are no record, with headers of another system."""
    return Message(topic, b"key of " + topic.encode(), b"\x00no record " + topic.encode(), [("trace", b"17")])


def test_a_message_that_fills_its_place_ends_no_worker(embedded_rig: Callable[..., Rig]) -> None:
    """The reasons of the letter need bytes, too, and producers refuse messages of more than 1,000,000."""
    rig = embedded_rig()
    simulated = Simulated(TICKS)
    large = {topic: Message(topic, b"large", b"\x00" * 999_800, []) for topic in (INVENTORY.name, TELEMETRY.name)}
    rig.send([*simulated.start, large[INVENTORY.name]])
    worker = rig.worker()
    rig.send([large[TELEMETRY.name], *(message for tick in simulated.ticks for message in tick)])
    rig.wait_drained(worker)
    wait_until(lambda: sum(rig.ends(DEAD_LETTERS.name).values()) == len(large), "the dead letters are there")
    for letter in rig.read(DEAD_LETTERS.name):
        sent = large[header(letter.headers, "__connect.errors.topic") or ""].value
        assert letter.value
        assert sent.startswith(letter.value)
        assert header(letter.headers, "__connect.errors.cut.value.bytes") == "999800"
        why = header(letter.headers, "__connect.errors.exception.message") or ""
        assert why.endswith(f"; its value was cut from 999800 to {len(letter.value)} bytes")
    forecasts = [r for r in rig.records(INSIGHTS.name) if isinstance(r, Forecast)]
    assert max(f.time_ns for f in forecasts) >= simulated.last_ns - 2_000_000_000
    assert worker.terminate() == 0


def test_each_topic_has_its_dead_letters(embedded_rig: Callable[..., Rig]) -> None:
    rig = embedded_rig()
    simulated = Simulated(TICKS)
    rig.send(simulated.start)
    rig.send([broken(STATE.name), broken(INVENTORY.name)])  # there before the worker starts
    worker = rig.worker()
    for i, tick in enumerate(simulated.ticks):
        rig.send(tick)
        if i == TICKS // 2:
            rig.send(broken(topic) for topic in STAGES if topic not in (STATE.name, INVENTORY.name))
            rig.send([Message(TELEMETRY.name, b"empty", b"", [])])
    rig.wait_drained(worker)
    wait_until(lambda: sum(rig.ends(DEAD_LETTERS.name).values()) > len(STAGES), "the dead letters are there")
    letters = {m.key: m for m in rig.read(DEAD_LETTERS.name)}
    assert len(letters) == len(STAGES) + 1
    assert sum(rig.ends(DEAD_LETTERS.name).values()) == len(letters)
    for topic, stage in STAGES.items():
        sent = broken(topic)
        letter = letters[sent.key]
        assert letter.value == sent.value
        assert header(letter.headers, "trace") == "17"
        why = {name: header(letter.headers, f"__connect.errors.{name}") for name in ("topic", "stage", "partition")}
        assert why == {"topic": topic, "stage": stage, "partition": why["partition"]}
        offset = int(header(letter.headers, "__connect.errors.offset") or "-1")
        place = (topic, int(why["partition"] or "-1"))
        assert any(m.offset == offset and m.value == sent.value for m in rig.read(topic) if m.place == place)
        assert header(letter.headers, "__connect.errors.exception.class.name") in ("DecodeError", "UnknownSchema")
        assert header(letter.headers, "__connect.errors.exception.message")
    forecasts = [r for r in rig.records(INSIGHTS.name) if isinstance(r, Forecast)]
    assert max(f.time_ns for f in forecasts) >= simulated.last_ns - 2_000_000_000  # good traffic went on
    assert worker.terminate() == 0
