"""``flyball waste``: a recording in, what was lost out."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from msgspec.structs import replace
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import flyball

from flyball_cli.waste.sums import added_up, hours
from flyball_contracts.codec import frame_message, record_message
from flyball_contracts.frame import make_frame
from flyball_contracts.metrics import GPU
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, Device, Inventory, Waste, WorkloadSpec
from flyball_contracts.topics import TOPICS
from flyball_streams.recording.format import RecordedMessage, event_time_ns
from flyball_streams.recording.writer import RecordingWriter

HOUR_NS = 3_600_000_000_000


def waste(subject: str, at: int, gpu_hours: float, usd: float | None, **changes: Any) -> Waste:
    given: dict[str, Any] = {"category": "idle", "devices": 2, "action": "scale", "proposal": f"end {subject}"}
    return Waste(
        id=f"{subject}-{at}-{changes.get('category', '')}",
        subject=subject,
        cell="c",
        time_ns=(at + 1) * HOUR_NS,
        from_ns=at * HOUR_NS,
        gpu_hours=gpu_hours,
        usd=usd,
        **(given | changes),
    )


def test_losses_add_up_by_subject_and_way_and_nothing_twice() -> None:
    again = waste("a", 0, 2.0, 4.0)
    found = [
        again,
        again,
        waste("a", 1, 1.0, None, devices=3),
        waste("b", 0, 9.0, None),
        waste("a", 0, 1.0, 9.0, category="low_duty"),
    ]
    losses = added_up(found)
    assert [(s.subject, s.category, s.gpu_hours, s.usd, s.devices) for s in losses] == [
        ("a", "low_duty", 1.0, 9.0, 2),
        ("a", "idle", 3.0, 4.0, 3),
        ("b", "idle", 9.0, None, 2),
    ]
    assert hours(losses) == 2.0
    assert (added_up([]), hours([])) == ([], 0.0)


TICK_NS = 20_000_000_000
START_NS = 1_750_000_000_000_000_000


def test_the_devices_of_a_workload_on_nodes_of_several_lanes_are_those_of_all() -> None:
    """Lanes take turns, so their hours end some ticks apart."""
    found = [
        replace(
            waste("gang", hour, 1.0, None, devices=devices), id=f"{lane}-{hour}", time_ns=end, from_ns=end - HOUR_NS
        )
        for hour in (1, 2)
        for lane, devices in enumerate((4 * (hour % 2), 8, 16))
        if devices
        for end in ((hour + 1) * HOUR_NS + lane * 10**9,)
    ]
    assert [(loss.subject, loss.devices) for loss in added_up(found)] == [("gang", 24)]


@pytest.fixture(scope="module")
def idle_hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of 80 minutes in which one of two GPUs is held and does nothing."""
    path = tmp_path_factory.mktemp("waste") / "idle.parquet"
    devices = tuple(Device(id=f"n1/{i}", model="h100", memory_bytes=80, index=i) for i in range(2))
    held = (Allocation(workload="old-job", replica="r0", devices=(0,)),)
    node = Inventory(
        node="n1", cell="c", epoch=1, time_ns=START_NS, boot_id="b", devices=devices, allocations=held,
        price_usd_per_hour=8.0,
    )  # fmt: skip
    spec = WorkloadSpec(workload="old-job", cell="c", time_ns=START_NS, kind="training")
    messages = [record_message(r, "/test") for r in (node, spec)]
    block = np.full((2, len(GPU)), np.nan, np.float32)
    block[:, [GPU.column("hw.gpu.utilization{task=general}"), GPU.column("hw.power")]] = 0.0, 60.0
    for i in range(240):
        frame = make_frame(
            block, schema=GPU.schema, node="n1", boot_id="b", epoch=1, seq=i, time_ns=START_NS + i * TICK_NS,
            period_ns=TICK_NS, inventory_epoch=1,
        )  # fmt: skip
        messages.append(frame_message(frame))
    with RecordingWriter(path, made_by="tests") as writer:
        for offset, m in enumerate(messages):
            time_ns, _ = event_time_ns(m.topic, m.value, m.headers, 0)
            place = partition_of(m.key, TOPICS[m.topic].partitions)
            writer.append(RecordedMessage(m.topic, place, offset, time_ns, 0, m.key, m.value, list(m.headers)))
    return path


def test_the_command_finds_what_is_lost_in_a_recording(idle_hour: Path) -> None:
    done = flyball("waste", idle_hour, "--json")
    assert done.returncode == 0, done.stderr
    (loss,) = json.loads(done.stdout)
    assert (loss["subject"], loss["category"], loss["action"], loss["devices"]) == ("old-job", "idle", "scale", 1)
    assert 0.3 < loss["gpu_hours"] < 80 / 60
    assert loss["usd"] == pytest.approx(4.0 * loss["gpu_hours"])


def test_what_workers_found_is_read_from_the_broker(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    at = embedded_broker({name: topic.partitions for name, topic in TOPICS.items()}).bootstrap
    record = waste("old-job", round(time.time() * 1e9) // HOUR_NS - 1, 1.5, 6.0)
    producer = Producer({"bootstrap.servers": at})
    message = record_message(record, "/test")
    producer.produce(message.topic, message.value, message.key, headers=list(message.headers))
    assert producer.flush(20) == 0
    done = flyball("waste", "--bootstrap", at)
    assert done.returncode == 0, done.stderr
    assert "scale: end old-job" in done.stdout
    assert "1.5 GPU hours and 6.00 USD in 1.0 hours" in done.stdout


def test_a_recording_that_is_none_is_one_line() -> None:
    done = flyball("waste", "/nowhere.parquet")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
