"""The whole agent while GPUs hang, are divided and added: what it sends fits together at every moment."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.collectors.agent.agent_tools import TOPICS, FakeTime, StartBroker, receive
from tests.nvml_stub.stub import NvmlStub

from flyball_collectors.agent import run_agent
from flyball_collectors.parameters import AgentParameters, GpuParameters
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.metrics import GPU, GPU_DETAIL

POWER = GPU.column("hw.power")
STALLED = GPU_DETAIL.column("flyball.agent.read.stalled")


def test_frames_fit_the_inventory_while_devices_change(
    nvml_stub: NvmlStub, embedded_broker: StartBroker, tmp_path: Path
) -> None:
    broker = embedded_broker(TOPICS)
    nvml_stub.set_gpus(2)
    steps: dict[int, Callable[[], None]] = {
        3: lambda: setattr(nvml_stub.gpu(1), "hung", 1),
        9: lambda: setattr(nvml_stub.gpu(1), "hung", 0),
        15: lambda: nvml_stub.set_instances([(1, 0, 3, 3), (2, 0, 3, 3)]),
        19: lambda: setattr(nvml_stub.state, "count", 3),
        23: lambda: nvml_stub.undivide(),
    }
    nvml_stub.gpu(2).uuid = b"GPU-new"
    time, pause = FakeTime(), threading.Event()
    waits = 0

    def wait(seconds: float) -> bool:
        nonlocal waits
        waits += 1
        steps.get(waits, lambda: None)()
        pause.wait(0.05)  # for the thread of a call that has come back to end
        return time.wait(seconds)

    settings = AgentParameters(
        node="n1",
        root=str(tmp_path),
        state_dir=str(tmp_path / "s"),
        inventory_period_s=1e6,
        gpu=GpuParameters(detail_period_s=2, stalled_after_s=0.4),
        disabled=("host", "kmsg"),
    )
    (tmp_path / "proc").mkdir()
    config = Config(kafka=KafkaConfig(bootstrap=broker.bootstrap), agent=settings)
    report = run_agent(config, stop=threading.Event(), max_ticks=30, clock=time.clock, wait=wait)
    assert (report.skipped, report.dropped) == (0, 0)
    sent = receive(broker.bootstrap, report.sent)
    rows = {inventory.epoch: len(inventory.devices) for inventory in sent.inventories}
    assert [frame.seq for frame in sorted(sent.frames, key=lambda frame: frame.seq)] == list(range(len(sent.frames)))
    gpu_frames = [frame for frame in sent.frames if frame.schema in (GPU.schema, GPU_DETAIL.schema)]
    assert {frame.rows - rows[frame.inventory_epoch] for frame in gpu_frames} == {0}
    current = [frame for frame in gpu_frames if frame.schema == GPU.schema]
    assert sorted({frame.rows for frame in current}) == [2, 3, 4, 5]
    assert all(frame.values[0, POWER] == 300 for frame in current)  # the first GPU is never without values
    blind = [bool(np.isnan(frame.values[1, POWER])) for frame in current if frame.rows == 2]
    assert (blind[0], any(blind), blind[-1]) == (False, True, False)
    details = [frame for frame in gpu_frames if frame.schema == GPU_DETAIL.schema]
    assert {float(frame.values[1, STALLED]) for frame in details if frame.rows == 2} == {0.0, 1.0}
    kinds = [event.kind for event in sorted(sent.events, key=lambda event: event.time_ns)]
    assert [kind for kind in kinds if not kind.startswith("agent")] == [
        "device_stalled", "device_added", "mig_changed", "device_added", "mig_changed",
    ]  # fmt: skip
