"""A curve of a feed reaches the workload lane, which makes a plan of it."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests.collectors.feeds.feed_server import NOW_NS, S, iso

from flyball_collectors.feeds.file import FileFeed
from flyball_collectors.feeds.parameters import FileFeedParameters
from flyball_contracts.codec import Message, decode_message, frame_message, record_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.frame import make_frame
from flyball_contracts.metrics import GPU
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Device, Inventory, Plan, WorkloadSpec
from flyball_contracts.topics import TOPICS
from flyball_streams.engine import Engine, Incoming

HOUR_NS = 3600 * S


def incoming(messages: Sequence[Message]) -> list[Incoming]:
    return [
        Incoming(m.topic, partition_of(m.key, TOPICS[m.topic].partitions), i, m.key, m.value, m.headers)
        for i, m in enumerate(messages)
    ]


def test_a_fed_signal_becomes_a_plan(tmp_path: Path) -> None:
    values = [400, 400, 400, 100, 100, 400, 400, 400]
    path = tmp_path / "de.csv"
    rows = [f"{iso(NOW_NS + i * HOUR_NS)},{v}" for i, v in enumerate(values)]
    path.write_text("\n".join(["time,value", *rows]))
    os.utime(path, ns=(NOW_NS - HOUR_NS, NOW_NS - HOUR_NS))
    (signal,) = FileFeed(FileFeedParameters(zone="DE", path=str(path))).fetch(NOW_NS)
    job = WorkloadSpec(
        workload="fold",
        cell="c",
        time_ns=NOW_NS,
        kind="batch",
        interruptible=True,
        duration_s=7200.0,
        cold_start_s=0.0,
        deadline_ns=NOW_NS + 8 * HOUR_NS,
    )
    device = Device(id="n/0", model="x", memory_bytes=1)
    node = Inventory(node="n", cell="c", zone="DE", epoch=1, time_ns=NOW_NS, boot_id="b", devices=(device,))
    sent = [record_message(r, "/test") for r in (node, job)] + [record_message(signal, "/feed/file/DE")]
    for t in range(20):
        frame = make_frame(
            np.full((1, len(GPU)), np.nan, np.float32),
            schema=GPU.schema,
            node="n",
            boot_id="b",
            epoch=1,
            seq=t,
            time_ns=NOW_NS + t * S,
            period_ns=S,
            inventory_epoch=1,
        )
        sent.append(frame_message(frame))
    engine = Engine(WorkerConfig())
    out = [decode_message(m.topic, m.value, m.headers) for i in incoming(sent) for m in engine.feed([i])]
    plans = [r for r in out if isinstance(r, Plan)]
    assert plans
    plan = plans[0]
    ran = [round((plan.start_ns + i * plan.step_s * S - NOW_NS) / HOUR_NS, 2) for i, r in enumerate(plan.run) if r]
    assert (plan.subject, plan.zone, plan.feasible) == ("fold", "DE", True)
    assert ran == [3.0, 3.25, 3.5, 3.75, 4.0, 4.25, 4.5, 4.75]
    assert plan.saving == 0.75
