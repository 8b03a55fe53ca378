"""``flyball nodes remove`` as an operator has it."""

import time
from collections.abc import Callable

from confluent_kafka import Producer
from tests.actuators.loop import PARTITIONS, publish
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import check_refused, flyball

from flyball_cli.compacted import read_compacted
from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import producer_settings
from flyball_contracts.records import Inventory
from flyball_contracts.topics import INVENTORY, TELEMETRY


def test_a_node_that_is_gone_is_removed_and_no_other(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    at, now_ms = ["--bootstrap", bootstrap], time.time_ns() // 10**6
    publish(
        bootstrap, *(Inventory(node=name, cell="eu-1", epoch=1, time_ns=now_ms * 10**6) for name in ("gone", "there"))
    )
    producer = Producer(producer_settings(bootstrap, client_id="test", extra={"enable.idempotence": "false"}))
    for name, sent_ms in (("gone", now_ms - 3_600_000), ("there", now_ms)):  # only keys and times are read
        producer.produce(TELEMETRY.name, b"frame", name.encode(), timestamp=sent_ms)
    assert producer.flush(30) == 0
    for arguments, words in (
        (["gone", "there", "--yes"], ["there sent frames", "stop the agent"]),
        (["gone"], ["--yes"]),
        (["gome", "--yes"], ["'gome' has no inventory", "'gone'"]),
        (["gone", "--cell", "eu-2", "--yes"], ["of cell 'eu-1', not 'eu-2'"]),
    ):
        refused = flyball("nodes", "remove", *arguments, *at)
        check_refused(refused.returncode, refused.stderr, *words)
    kafka = KafkaConfig(bootstrap=bootstrap)
    assert sorted(key for key, _ in read_compacted(kafka, INVENTORY, "test")) == ["gone", "there"]
    done = flyball("nodes", "remove", "gone", "--cell", "eu-1", "--yes", *at)
    assert done.returncode == 0, done.stderr
    assert "gone of cell eu-1: 0 devices" in done.stdout
    known = dict(read_compacted(kafka, INVENTORY, "test"))
    assert (known["gone"], known["there"] is None) == (None, False)
    again = flyball("nodes", "remove", "gone", "--yes", *at)
    check_refused(again.returncode, again.stderr, "'gone' has no inventory")
