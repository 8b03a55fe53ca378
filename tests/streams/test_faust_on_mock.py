"""Faust runs on the embedded broker with our two patches, and the patched names still exist."""

import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import Server, free_ports

PARTITIONS = 6
READY_S = 90.0
WORKER = """
import asyncio
import sys
import faust
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance as Rebalance
from flyball_streams.broker import faust_on_mock

follow_join = Rebalance._on_join_follower

async def follow_late(rebalance):
    await asyncio.sleep(0.1)  # a slow follower, each time and not by chance
    return await follow_join(rebalance)

Rebalance._on_join_follower = follow_late
faust_on_mock.apply(fetch_wait_ms=50, leader_delay_s=0.3)
app = faust.App(
    "flyball-test", broker=f"kafka://{sys.argv.pop(1)}", store="memory://", datadir=sys.argv.pop(1),
    topic_allow_declare=False, topic_disable_leader=True,
    broker_session_timeout=3.0, broker_heartbeat_interval=0.5, broker_rebalance_timeout=3.0,
    consumer_auto_offset_reset="earliest",
)
ticks = app.topic("ticks", key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")

@app.agent(ticks)
async def note(stream):
    fetcher = app.consumer._thread._consumer._fetcher
    sys.__stdout__.write(f"fetch wait {fetcher._fetch_max_wait_ms} ms\\n")
    async for event in stream.events():
        message = event.message
        sys.__stdout__.write(f"partition {message.partition} value {event.value.decode()}.\\n")
        sys.__stdout__.flush()

if __name__ == "__main__":
    app.main()
"""


def test_two_workers_share_a_topic(embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    # The second to join is a follower: without the second patch it hangs for ever.
    started = embedded_broker({"ticks": PARTITIONS})
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    producer = Producer({"bootstrap.servers": started.bootstrap, "log_level": 2})
    sent = 0

    def all_partitions_noted_by(*readers: Path) -> bool:
        """Tick every partition once more; whether each reader has some, and together they have all."""
        nonlocal sent
        for partition in range(PARTITIONS):
            producer.produce("ticks", str(sent).encode(), partition=partition)
        sent += 1
        assert producer.flush(READY_S) == 0
        noted = [_partitions(log, since=joined) for log in readers]
        return all(noted) and set[str]().union(*noted) == {str(p) for p in range(PARTITIONS)}

    with ExitStack() as stack:
        for count, log in enumerate(logs, start=1):
            joined = sent
            command = [sys.executable, str(script), started.bootstrap, str(tmp_path / log.stem)]
            port = free_ports(1)[0]
            server = Server("Faust", [*command, "worker", "--without-web", f"--web-port={port}", "-l", "warn"], log)
            stack.callback(server.stop)
            server.wait_until(partial(all_partitions_noted_by, *logs[:count]), READY_S)
            assert "fetch wait 50 ms" in log.read_text()


def _partitions(log: Path, since: int) -> set[str]:
    """The partitions of which a worker has noted a value not older than `since`."""
    whole = re.findall(r"^partition (\d+) value (\d+)\.$", log.read_text(), re.MULTILINE)
    return {partition for partition, value in whole if int(value) >= since}
