"""Topics that were deleted and made again: the worker says so and goes on with what is there."""

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from faust.types import TP
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import RealKafka
from tests.streams.engine.recorded import SMALL
from tests.streams.engine.scene import START_NS
from tests.streams.worker.rig import DEADLINE_S, PARTITIONS, Process, Rig, Simulated, incoming, wait_until

from flyball_contracts.codec import decode_record
from flyball_contracts.config import Config, KafkaConfig, WorkerConfig
from flyball_contracts.frame import decode_frame
from flyball_contracts.records import DemandTick
from flyball_contracts.topics import DEMAND, EVENTS, STATE, TELEMETRY
from flyball_simulator import Fleet
from flyball_streams.engine import Incoming
from flyball_streams.worker.host import LaneHost
from flyball_streams.worker.snapshots import SnapshotShelf, cut, state_of

PLACE = TP(TELEMETRY.name, 0)


def wait_closed(rig: Rig, worker: Process, simulated: Simulated, ticks: int) -> None:
    """Wait until the last ticks have closed, and the worker has said that topics are others."""
    last = max(decode_frame(m.value).time_ns for m in simulated.ticks[-1] if m.topic == TELEMETRY.name) // 10**9

    def closed() -> bool:
        worker.check()
        found = {d.tick.index for d in rig.records(DEMAND.name) if isinstance(d, DemandTick)}
        return found >= set(range(last - ticks + 1, last + 1)) and "was made again" in worker.text()

    wait_until(closed, "the new ticks are closed")


def test_offsets_beyond_the_end_are_of_another_topic(caplog: pytest.LogCaptureFixture) -> None:
    fleet, batch = Fleet(SMALL, START_NS), list[Incoming]()
    for i in range(12):
        taken = [incoming(m) for m in fleet.tick(i) if m.topic == TELEMETRY.name]
        batch += [m for m in taken if m.partition == PLACE.partition]
    assert batch
    batch = [m._replace(offset=i) for i, m in enumerate(batch)]
    with EmbeddedBroker(PARTITIONS) as broker, caplog.at_level(logging.WARNING):
        worker = msgspec.structs.replace(WorkerConfig(), app="again")
        host = LaneHost(Config(kafka=KafkaConfig(bootstrap=broker.bootstrap), worker=worker), PARTITIONS, "test")
        host.start()
        for m in fleet.messages_at_start():
            host.directory.apply(decode_record(m.topic, m.value, m.headers))
        host.resume([PLACE])
        host.begin({PLACE: 5000})
        host.step([(PLACE, batch[:5])])
        host.step([(PLACE, batch[5:])])
        assert host.offset(*PLACE) == len(batch)
        assert host.stats()["node/0"].used == len(batch)
        host.close()
    assert sum("was made again" in record.message for record in caplog.records) == 1


def test_snapshots_of_a_topic_that_is_gone_are_not_taken_for_the_new_one() -> None:
    shelf = SnapshotShelf()
    for offset, topics in ((900, {"t": "old"}), (3, {"t": "new"})):
        for part in cut("app:node", 0, "1", 1, {"t/0": offset}, str(offset).encode(), topics):
            shelf.put(part)
    found = shelf.newest("app:node", 0, {"t": "new"})
    assert found is not None
    assert state_of(found) == b"3"
    assert shelf.newest("app:node", 0, {"t": "newest"}) is None


@pytest.mark.integration
@pytest.mark.parametrize("more", [10, 40], ids=["shorter", "longer"])
def test_a_worker_goes_on_with_topics_that_were_made_again(
    real_kafka: RealKafka, tmp_path: Path, unique: Any, more: int
) -> None:
    ticks, names = 20, [TELEMETRY.name, EVENTS.name]
    simulated = Simulated(ticks + more)
    with Rig(real_kafka, tmp_path, unique("again"), {}) as rig:
        rig.send(simulated.start)
        worker = rig.worker("--log-level", "INFO")
        for tick in simulated.ticks[:ticks]:
            rig.send(tick)
        rig.wait_drained(worker)
        wait_until(lambda: any(rig.ends(STATE.name).values()), "snapshots are there")
        admin: Any = AdminClient({"bootstrap.servers": real_kafka.bootstrap})
        for removal in admin.delete_topics(names, request_timeout=DEADLINE_S).values():
            removal.result(DEADLINE_S)
        wait_until(lambda: not set(admin.list_topics(timeout=5.0).topics) & set(names), "the topics are gone")
        real_kafka.create_topics({name: PARTITIONS[name] for name in names})
        for tick in simulated.ticks[ticks:]:
            rig.send(tick)
        wait_closed(rig, worker, simulated, more)
        assert worker.terminate() == 0


@pytest.mark.integration
def test_a_worker_goes_on_after_its_broker_lost_everything(kafka_jars: Path, tmp_path: Path) -> None:
    ticks, more = 20, 30
    simulated = Simulated(ticks + more)
    with RealKafka(jars=kafka_jars) as kafka, Rig(kafka, tmp_path, "wiped", {}) as rig:
        rig.send(simulated.start)
        worker = rig.worker("--log-level", "INFO")
        for tick in simulated.ticks[:ticks]:
            rig.send(tick)
        rig.wait_drained(worker)
        wait_until(lambda: any(rig.ends(STATE.name).values()), "snapshots are there")
        kafka.wipe()
        kafka.create_topics(PARTITIONS)
        rig.send(simulated.start)
        for tick in simulated.ticks[ticks:]:
            rig.send(tick)
        wait_closed(rig, worker, simulated, more)
        rig.wait_drained(worker)
        assert worker.terminate() == 0
