"""The actuator on a real Apache Kafka: joining, compacted topics, commits, and a broker that is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from tests.actuators.handing_over import Group
from tests.actuators.loop import (
    DEADLINE_S,
    PARTITIONS,
    FilePlatform,
    committed,
    config_for,
    outcomes,
    publish,
    read_all,
    running,
    statuses_of,
    wait_for,
)
from tests.actuators.platform_server import PlatformServer, platform_server
from tests.actuators.samples import NOW, S, inventory, scale, spec
from tests.brokers.kafka import RealKafka

from flyball_actuators.parameters import RateParameters
from flyball_contracts.config import PlatformConfig
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Outcome
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS, OUTCOMES, TOPICS

ROOT = Path(__file__).resolve().parents[3]
MANY = 96
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(kafka_jars: Path) -> Iterator[RealKafka]:
    with RealKafka({}, jars=kafka_jars) as running_broker:
        yield running_broker


def delete_topics(kafka: RealKafka) -> None:
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})  # its own types are incomplete
    there = [t for t in admin.list_topics(timeout=10).topics if t in TOPICS]
    for done in admin.delete_topics(there).values() if there else ():
        done.result(DEADLINE_S)
    wait_for(lambda: not set(admin.list_topics(timeout=10).topics) & set(TOPICS), "the end of the topics")


@pytest.fixture
def kafka(broker: RealKafka) -> RealKafka:
    """A broker whose topics are new."""
    delete_topics(broker)
    make_topics(broker)
    return broker


def make_topics(kafka: RealKafka) -> None:
    kafka.create_topics(PARTITIONS)

    def led() -> bool:
        topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics
        found = {name: len(topics[name].partitions) for name in PARTITIONS if name in topics}
        return found == PARTITIONS and all(p.leader >= 0 for t in topics.values() for p in t.partitions.values())

    wait_for(led, "the new topics")


def test_every_decision_has_one_effect_and_a_final_outcome(
    kafka: RealKafka, unique: Callable[[str], str], tmp_path: Path
) -> None:
    address, group, driver = kafka.bootstrap, unique("actuator"), FilePlatform(tmp_path / "effects")
    publish(address, spec(), inventory(replicas=4))
    config = config_for(address, group, mode="live", ledger=str(tmp_path / "ledger"))
    with running(config, driver):
        publish(address, scale("d1"), scale("d1"), scale("bad", after=99))
        wait_for(lambda: committed(address, group) == 3, "the first commits")
        kafka.set_down()
        kafka.set_up()
        publish(address, scale("d2", time_ns=NOW + S))
        wait_for(lambda: committed(address, group) == 4, "the commit after the broker's crash")
    with running(config, driver):
        publish(address, scale("d2", time_ns=NOW + S), scale("d3", time_ns=NOW + 2 * S))
        wait_for(lambda: committed(address, group) == 6, "the commits of the second run")
    assert driver.effects() == ["d1", "d2", "d3"]
    assert statuses_of(address, "bad") == ["refused invalid"]
    for decision in ("d1", "d2", "d3"):
        assert statuses_of(address, decision)[:3] == ["accepted", "running", "done"]
        assert set(statuses_of(address, decision)[3:]) <= {"done"}


@pytest.mark.parametrize("how", ["topics made again", "wiped"])
def test_other_topics_are_noticed_and_read_from_the_start(
    kafka: RealKafka, unique: Callable[[str], str], tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    address, group = kafka.bootstrap, unique("actuator")
    names = [f"w{i}" for i in range(20)]

    def known() -> None:
        publish(address, *map(spec, names))

    def restarts() -> list[str]:
        return [r.message for r in caplog.records if "starting again" in r.message and "topic" in r.message]

    with platform_server(**dict.fromkeys(names, 4)) as server:
        config = config_for(
            address, group, mode="live", ledger=str(tmp_path / "ledger"), per_cell=RateParameters(1000),
            platforms=(PlatformConfig(driver="simulated", url=server.url, poll_s=0.05),),
        )  # fmt: skip
        known()
        with running(config) as actuator:
            before = [scale(f"d{i}", workload=names[i]) for i in range(12)]
            publish(address, *before)
            wait_for(lambda: committed(address, group) == 12, "the first commits")
            if how == "wiped":
                kafka.wipe()
            else:
                delete_topics(kafka)
            beats = actuator.beats
            make_topics(kafka)
            known()
            # Some were done before, and are sent once more; more come than were read of the old topics.
            publish(address, *before[:2], *(scale(f"e{i}", workload=names[12 + i]) for i in range(8)))
            wait_for(lambda: len(server.effects) == 20, "the new decisions")
            wait_for(lambda: {o.decision for o in outcomes(address) if o.final} >= {"d0", "d1", "e0"}, "words")
            wait_for(lambda: actuator.beats > beats, "the health of an actuator that goes on")
            # It looks every few seconds which topics they are, and may have done all before that.
            wait_for(lambda: len(restarts()) == 1, "the word that the topics are others")
            wait_for(lambda: "it is read from its start" in caplog.text, "the new beginning")
        assert (
            sorted(server.effects) == sorted(server.log) == sorted([d.id for d in before] + [f"e{i}" for i in range(8)])
        )
        assert "done" in statuses_of(address, "d0"), "the ledger knows what was done"
    assert len(restarts()) == 1, restarts()


class Two:
    """Two actuators of one group with a ledger each, as processes; a broker and a platform that outlive them."""

    def __init__(self, kafka: RealKafka, group: str, where: str, folder: Path) -> None:
        self.address, self.group, self.where, self.folder = kafka.bootstrap, group, where, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sent: list[str] = []
        self.names = [f"w{i}" for i in range(MANY)]
        publish(self.address, *map(spec, self.names))
        for name in ("a", "b"):
            self.start(name)

    def start(self, name: str) -> None:
        folders = os.pathsep.join(str(ROOT / part) for part in ("", "contracts", "actuators", "streams"))
        arguments = [self.address, self.group, self.where, str(self.folder / f"ledger-{name}")]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.actuators.actuating", *arguments],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": folders}, stdout=log, stderr=log,
            )  # fmt: skip

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[name].wait(DEADLINE_S)

    def decide(self, count: int) -> None:
        """Send so many decisions, each about a workload of its own."""
        ids = [f"d{len(self.sent) + i}" for i in range(count)]
        publish(self.address, *(scale(id_, workload=id_.replace("d", "w"), before=4, after=5) for id_ in ids))
        self.sent += ids

    def settled(self) -> bool:
        return {o.decision for o in outcomes(self.address) if o.final} == set(self.sent)

    def close(self) -> str:
        """End all, and give what they logged."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            process.wait(DEADLINE_S)
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


def shake(two: Two) -> None:
    """Kill one, stop the other beyond its session, under load; then let both end their work."""
    two.decide(16)
    wait_for(two.settled, "the first final outcomes")
    two.decide(8)
    two.signal("a", signal.SIGKILL)
    two.decide(8)
    wait_for(two.settled, "the successor of the one that was killed")
    two.start("a")
    two.decide(16)
    time.sleep(0.05)
    two.signal("b", signal.SIGSTOP)
    two.decide(16)
    wait_for(two.settled, "the successor of the one that stands still")
    two.decide(16)
    two.signal("b", signal.SIGCONT)
    two.decide(16)
    wait_for(two.settled, "the final outcomes of all")
    time.sleep(1.0)  # what the zombie may still want to do


def final_outcomes(address: str) -> dict[str, set[bytes]]:
    by_decision: dict[str, set[bytes]] = {}
    for value, _ in read_all(address, OUTCOMES.name):
        outcome = msgspec.json.decode(value or b"", type=Outcome)
        if outcome.final:
            by_decision.setdefault(outcome.decision, set()).add(value or b"")
    return by_decision


def test_two_actuators_with_two_ledgers_act_once(
    kafka: RealKafka, unique: Callable[[str], str], tmp_path: Path
) -> None:
    with platform_server(**{f"w{i}": 4 for i in range(MANY)}) as server:
        server.takes_s = 0.3
        two = Two(kafka, unique("actuator"), server.url, tmp_path)
        try:
            shake(two)
        finally:
            log = two.close()
    by_decision = final_outcomes(two.address)
    assert {decision for decision, statuses_ in by_decision.items() if len(statuses_) != 1} == set(), log
    statuses = {o.decision: o.status for o in outcomes(two.address) if o.final}
    assert statuses == dict.fromkeys(two.sent, "done"), log
    assert sorted(server.effects) == sorted(two.sent), log
    assert [state.replicas for state in server.workloads.values()] == [5] * MANY


def test_two_actuators_on_a_platform_that_remembers_nothing_never_act_twice(
    kafka: RealKafka, unique: Callable[[str], str], tmp_path: Path
) -> None:
    file = FilePlatform(tmp_path / "effects")
    two = Two(kafka, unique("actuator"), str(tmp_path / "effects"), tmp_path)
    try:
        shake(two)
    finally:
        log = two.close()
    assert len(set(file.effects())) == len(file.effects()), log
    by_decision = final_outcomes(two.address)
    assert {decision for decision, statuses_ in by_decision.items() if len(statuses_) != 1} == set(), log
    done = {o.decision for o in outcomes(two.address) if o.status == "done"}
    failed = [o for o in outcomes(two.address) if o.status == "failed"]
    assert done <= set(file.effects())
    assert done | {o.decision for o in failed} == set(two.sent)
    assert all(o.detail.startswith("unknown outcome: ") for o in failed)


def add_partition(kafka: RealKafka, topic: str) -> None:
    """Give a topic one partition more."""
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})  # its own types are incomplete
    for done in admin.create_partitions([NewPartitions(topic, PARTITIONS[topic] + 1)]).values():
        done.result(DEADLINE_S)


def test_partitions_are_added_while_two_actuators_have_operations_under_way(
    kafka: RealKafka, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """One cell moves to a new partition, one to another's old partition, and one stays; whoever sends knows at once."""
    places = ((0, 0), (0, 2), (1, 0))  # of two partitions, and of three
    names = [f"cell-{i}" for i in range(99)]
    cells = [next(c for c in names if tuple(partition_of(c.encode(), n) for n in (2, 3)) == at) for at in places]
    work = ("begun", *(f"w{i}" for i in range(8)))
    with ExitStack() as stack:
        servers = {cell: PlatformServer(cell) for cell in cells}
        for server in servers.values():
            stack.callback(server.close)
        group = Group(kafka.bootstrap, unique("actuator"), tmp_path, servers, ("probe", *work))
        try:
            for name in ("a", "b"):
                group.start(name)
            group.owners({"a", "b"})
            for server in servers.values():
                server.held = True
            begun = group.decide("begun", *cells)
            wait_for(lambda: all("running" in statuses_of(group.address, id_) for id_ in begun), "the operations")
            for topic in (DECISIONS, OUTCOMES):
                add_partition(kafka, topic.name)
                for name in work[1:5] if topic is DECISIONS else work[5:]:
                    group.decide(name, *cells)
                    time.sleep(0.3)
            group.decide("begun", *cells)  # as a worker does that starts again; they come in other partitions
            wait_for(lambda: len(read_all(group.address, DEAD_LETTERS.name)) == 2, "what came again")
            for server in servers.values():
                server.held = False
            wait_for(group.settled, "the last words")
        finally:
            log = group.close()
    for cell, server in servers.items():
        of_cell = sorted(id_ for id_ in group.sent if id_.endswith(cell))
        assert sorted(server.effects) == sorted(server.log) == of_cell, log
    lasts = final_outcomes(group.address)
    assert {id_: len(of_one) for id_, of_one in lasts.items()} == dict.fromkeys(group.sent, 1), log
    assert {o.status for o in outcomes(group.address) if o.final} == {"done"}, log
    assert "the group acted when it had 2" in log
