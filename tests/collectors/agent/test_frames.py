"""Frames of several layouts and periods in one sequence, and what the agent says of itself."""

import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.collectors.agent.agent_tools import TOPICS, FakeTime, S, StartBroker, receive

from flyball_collectors.agent import AgentReport, run_agent
from flyball_collectors.base import Parts, Reading
from flyball_collectors.parameters import AgentParameters, ExportParameters
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import GPU, GPU_DETAIL, GPU_SHARE, HOST, NUMA, Layout
from flyball_contracts.records import Device, NodeEvent, NumaNode


class Paced:
    """Reports each layout every so many reads, and breaks at some of them."""

    name = "paced"

    def __init__(self, every: dict[int, tuple[Layout, ...]], breaks_at: tuple[int, ...] = ()) -> None:
        self._reads = 0
        self._every = every
        self._breaks_at = breaks_at

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        self._reads += 1
        if self._reads in self._breaks_at:
            raise RuntimeError("broken")
        due = [layout for every, layouts in self._every.items() if self._reads % every == 0 for layout in layouts]
        return [Reading(layout.schema, np.zeros((1, len(layout)), np.float32)) for layout in due]

    def parts(self) -> Parts:
        return Parts(
            (Device(id="GPU-0", model="fake", memory_bytes=1),), numa=(NumaNode(id=0, cpu_count=1, memory_bytes=1),)
        )

    def events(self) -> list[NodeEvent]:
        return []

    def close(self) -> None:
        return


def run(bootstrap: str, folder: Path, collector: Paced, ticks: int, queue_bytes: int = 1 << 24) -> AgentReport:
    agent = AgentParameters(
        node="n1", state_dir=str(folder / "state"), queue_bytes=queue_bytes, disabled=("host", "nvml")
    )
    fake_time = FakeTime()
    return run_agent(
        Config(kafka=KafkaConfig(bootstrap=bootstrap, client={"linger.ms": "0"}), agent=agent),
        stop=threading.Event(),
        max_ticks=ticks,
        collectors=[collector],
        clock=fake_time.clock,
        wait=fake_time.wait,
    )


def test_each_layout_has_its_own_period_and_all_share_one_sequence(
    embedded_broker: StartBroker, tmp_path: Path
) -> None:
    broker = embedded_broker(TOPICS)
    paced = Paced({1: (GPU,), 2: (NUMA, GPU_SHARE), 5: (GPU_DETAIL,)})
    report = run(broker.bootstrap, tmp_path, paced, 20)
    frames = receive(broker.bootstrap, report.delivered).frames
    assert [frame.seq for frame in frames] == list(range(20 + 10 + 10 + 4))
    periods = {
        layout.name: [frame.period_ns // S for frame in frames if frame.schema == layout.schema]
        for layout in (GPU, NUMA, GPU_SHARE, GPU_DETAIL)
    }
    assert periods == {
        "gpu": [1] * 20,
        "numa": [1] + [2] * 9,  # nothing came before the first
        "gpu_share": [1] + [2] * 9,
        "gpu_detail": [1] + [5] * 3,
    }


def test_a_frame_after_a_failure_covers_the_time_of_both(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    report = run(broker.bootstrap, tmp_path, Paced({1: (GPU,)}, breaks_at=(3, 4)), 6)
    frames = receive(broker.bootstrap, report.delivered).frames
    assert [frame.seq for frame in frames] == [0, 1, 2, 3]
    assert [frame.period_ns // S for frame in frames] == [1, 1, 3, 1]


def test_the_agent_counts_its_own_messages(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    report = run(broker.bootstrap, tmp_path, Paced({1: (GPU, HOST)}), 5)
    hosts = [f.values[0] for f in receive(broker.bootstrap, report.delivered).frames if f.schema == HOST.schema]
    produced = [float(row[HOST.column("flyball.agent.records{state=produced}")]) for row in hosts]
    assert produced == [3, 2, 2, 2, 2]  # the start and the inventory come with the first GPU frame
    for key in (
        "flyball.agent.records{state=dropped}",
        "flyball.agent.ticks{state=skipped}",
        "flyball.agent.spool.age",
    ):
        assert [float(row[HOST.column(key)]) for row in hosts] == [0] * 5


def test_the_agent_reports_what_waits_on_disk(tmp_path: Path) -> None:
    nowhere = "127.0.0.1:1"
    rows: list[NDArray[np.float32]] = []

    class Kept(Paced):
        def read(self, now_ns: int, period_ns: int) -> list[Reading]:
            readings = super().read(now_ns, period_ns)
            rows.extend(reading.values[0] for reading in readings)
            return readings

    report = run(nowhere, tmp_path, Kept({1: (HOST,)}), 40, queue_bytes=1)
    assert report.spooled == report.sent
    usage, age = (HOST.column(f"flyball.agent.spool.{what}") for what in ("usage", "age"))
    spooled = HOST.column("flyball.agent.records{state=spooled}")
    assert rows[-1][usage] > rows[0][usage]
    assert rows[-1][age] > 0
    assert sum(float(row[spooled]) for row in rows) <= report.spooled


def test_without_kafka_the_outputs_are_fed_and_nothing_is_counted_as_lost(tmp_path: Path) -> None:
    export = ExportParameters(metrics_listen="127.0.0.1:0")
    agent = AgentParameters(node="n1", state_dir=str(tmp_path / "state"), export=export)
    fake_time = FakeTime()
    report = run_agent(
        Config(kafka=KafkaConfig(bootstrap=""), agent=agent),
        stop=threading.Event(),
        max_ticks=3,
        collectors=[Paced({1: (GPU,)})],
        clock=fake_time.clock,
        wait=fake_time.wait,
    )
    assert (report.ticks, report.frames, report.sent, report.dropped, report.spooled) == (3, 3, 0, 0, 0)
    assert not list(tmp_path.rglob("spool-*"))


def test_an_agent_that_nobody_would_hear_is_a_config_error(tmp_path: Path) -> None:
    agent = AgentParameters(node="n1", state_dir=str(tmp_path / "state"))
    with pytest.raises(ConfigError, match=r"agent\.export"):
        run_agent(Config(kafka=KafkaConfig(bootstrap=""), agent=agent), stop=threading.Event(), collectors=[])
