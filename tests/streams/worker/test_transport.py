"""The contract of the batch transport with the versions of Faust and aiokafka that are installed."""

import json
from itertools import chain
from pathlib import Path

from tests.streams.worker.rig import Process, Rig, lines, wait_until

from flyball_contracts.codec import Message
from flyball_contracts.kafka import Place
from flyball_contracts.topics import DEMAND, EVENTS, PROPOSALS, TELEMETRY

TOPICS = (TELEMETRY.name, EVENTS.name, DEMAND.name, PROPOSALS.name)
MODULE = "tests.streams.worker.noting"


def send(rig: Rig, first: int, count: int) -> None:
    """`count` messages to each of the source topics, spread over their partitions."""
    rig.send(Message(topic, str(i).encode(), b"x" * 100, []) for i in range(first, first + count) for topic in TOPICS)


def noted(notes: Path) -> dict[Place, list[int]]:
    """Offsets of each partition in the order in which they came."""
    found: dict[Place, list[int]] = {}
    for note in lines(notes):
        if "offsets" in note:
            found.setdefault((note["topic"], note["partition"]), []).extend(note["offsets"])
    return found


def start(rig: Rig, notes: Path, resume: dict[Place, int], *hidden: str) -> Process:
    places = json.dumps([[*place, offset] for place, offset in resume.items()])
    kind = "embedded" if rig.embedded else "kafka"
    return rig.python(MODULE, str(rig.path), str(notes), places, kind, *hidden)


def wait_committed(rig: Rig, process: Process) -> None:
    rig.wait_drained(process)
    assert rig.committed(*TOPICS) == rig.ends(*TOPICS)


def test_order_commits_and_exact_resume(rig: Rig, tmp_path: Path) -> None:
    send(rig, 0, 300)
    first, second = tmp_path / "first", tmp_path / "second"
    process = start(rig, first, {})
    wait_committed(rig, process)
    send(rig, 300, 50)  # while it runs
    wait_committed(rig, process)
    ends = rig.ends(*TOPICS)
    assert noted(first) == {place: list(range(end)) for place, end in ends.items()}
    assert any(len(note["offsets"]) > 1 for note in lines(first) if "offsets" in note)  # batches, not messages
    assert process.terminate() == 0
    assert lines(first)[-1] == {"saved": True}  # the last thing before it leaves its group

    send(rig, 350, 50)
    process = start(rig, second, {})
    wait_committed(rig, process)
    assert noted(second) == {place: list(range(ends[place], end)) for place, end in rig.ends(*TOPICS).items()}
    assert process.terminate() == 0
    begun = [[topic, partition, ends[topic, partition]] for topic, partition in sorted(ends)]
    assert lines(second)[0] == {"begin": begun}


def test_lanes_say_where_partitions_go_on(rig: Rig, tmp_path: Path) -> None:
    # Ahead of what was committed, and behind it: both happen when a worker is killed.
    send(rig, 0, 100)
    first, second = tmp_path / "first", tmp_path / "second"
    ahead, behind = (TELEMETRY.name, 1), (TELEMETRY.name, 2)
    skipped = rig.ends(TELEMETRY.name)[ahead] - 5
    process = start(rig, first, {ahead: skipped})
    wait_committed(rig, process)
    assert noted(first)[ahead] == list(range(skipped, skipped + 5))
    assert process.terminate() == 0

    ends = rig.ends(*TOPICS)
    send(rig, 100, 100)
    process = start(rig, second, {ahead: ends[ahead] + 7, behind: 3})
    wait_committed(rig, process)  # although the offsets between are never acknowledged
    found = noted(second)
    assert found[ahead] == list(range(ends[ahead] + 7, rig.ends(*TOPICS)[ahead]))
    assert found[behind] == list(range(3, rig.ends(*TOPICS)[behind]))
    assert process.terminate() == 0


def test_two_share_and_nothing_is_lost_when_one_is_killed(rig: Rig, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    one = start(rig, first, {})
    send(rig, 0, 40)
    wait_committed(rig, one)
    two = start(rig, second, {})
    sent = 40

    def both_work() -> bool:
        nonlocal sent
        one.check()
        two.check()
        send(rig, sent, 40)
        sent += 40
        return len(noted(second)) > 0

    def frames_and_events_meet() -> bool:  # of a node, in one lane
        places = noted(second)
        telemetry = {p for topic, p in places if topic == TELEMETRY.name}
        return telemetry == {p for topic, p in places if topic == EVENTS.name}

    wait_until(both_work, "the second gets partitions")
    wait_until(frames_and_events_meet, "the second has the same partitions of telemetry and events")
    one.kill()
    send(rig, sent, 40)
    rig.wait_drained(two)
    ends = rig.ends(*TOPICS)
    for place, end in ends.items():
        seen = set(chain(noted(first).get(place, []), noted(second).get(place, [])))
        assert seen == set(range(end)), f"{place} lost {sorted(set(range(end)) - seen)[:10]}"


def test_a_topic_that_the_leader_did_not_know_is_assigned_when_it_is_known(rig: Rig, tmp_path: Path) -> None:
    send(rig, 0, 50)
    process = start(rig, tmp_path / "notes", {}, TELEMETRY.name)
    wait_committed(rig, process)
    assert "Ignoring missing topic" in process.text()
    assert noted(tmp_path / "notes").keys() == rig.ends(*TOPICS).keys()
    assert process.terminate() == 0
