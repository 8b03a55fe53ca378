"""GPUs whose driver is not ready when the agent starts: they are measured once it is."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace
from tests.collectors.agent.agent_tools import TOPICS, FakeTime, StartBroker, receive
from tests.collectors.nvml.nvml_tools import S
from tests.nvml_stub.stub import NvmlStub

from flyball_collectors.agent import run_agent
from flyball_collectors.agent.setup import Setup
from flyball_collectors.parameters import AgentParameters, GpuParameters
from flyball_contracts.config import AgentConfig, Config, ExportConfig, KafkaConfig
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Inventory

Steps = Mapping[int, Callable[[], object]]


class Node:
    """A node whose agent tries NVML every five ticks."""

    def __init__(self, stub: NvmlStub, start_broker: StartBroker, root: Path) -> None:
        self.stub, self.root = stub, root
        self.inventories: list[Inventory] = []
        self._broker = start_broker(TOPICS)
        (root / "proc").mkdir()

    def add_gpu(self, driver: str = "") -> None:
        """Let the kernel list a GPU on the PCI bus."""
        folder = self.root / "sys/bus/pci/devices/0000:10:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")
        if driver:
            (self.root / driver).mkdir()
            (folder / "driver").symlink_to(self.root / driver)

    def load_driver(self) -> None:
        (self.root / "proc/driver/nvidia").mkdir(parents=True)

    def run(self, ticks: int, steps: Steps, disabled: tuple[Literal["nvml"], ...] = ()) -> list[int]:
        """Run the agent, with ``steps`` after so many seconds; return the numbers of rows of its GPU frames."""
        fake, ahead, waited_s = FakeTime(), dict(steps), 0.0

        def wait(seconds: float) -> bool:
            nonlocal waited_s
            waited_s += seconds
            for second in [second for second in ahead if second <= waited_s]:
                ahead.pop(second)()
            time.sleep(0.02)  # for the thread that opens NVML
            return fake.wait(seconds)

        settings = AgentParameters(
            node="n1",
            root=str(self.root),
            state_dir=str(self.root / "s"),
            gpu=GpuParameters(retry_period_s=5),
            disabled=("host", "kmsg", "attribution", *disabled),
        )
        config = Config(kafka=KafkaConfig(bootstrap=self._broker.bootstrap), agent=settings)
        report = run_agent(config, stop=threading.Event(), max_ticks=ticks, clock=fake.clock, wait=wait)
        assert report.ticks == ticks
        sent = receive(self._broker.bootstrap, report.sent)
        self.inventories = sorted(sent.inventories, key=lambda inventory: inventory.epoch)
        return [frame.rows for frame in sent.frames if frame.schema == GPU.schema]


@pytest.fixture
def node(nvml_stub: NvmlStub, embedded_broker: StartBroker, tmp_path: Path) -> Node:
    nvml_stub.set_gpus(2)
    return Node(nvml_stub, embedded_broker, tmp_path)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_gpus_are_measured_once_nvml_answers(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.add_gpu()
    node.stub.state.init = 9
    rows = node.run(40, {20: lambda: setattr(node.stub.state, "init", 0)})
    assert 5 < len(rows) < 20
    assert set(rows) == {2}
    assert [len(one.devices) for one in (node.inventories[0], node.inventories[-1])] == [0, 2]
    assert node.inventories[-1].driver_version
    missing, found = warnings(caplog)  # not again at each try
    assert "Driver Not Loaded; load the driver: nvidia-smi must work" in missing
    assert "measured from now on" in found


def test_a_start_of_nvml_that_hangs_stops_no_tick(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.add_gpu()
    node.stub.state.init = 9

    def hang() -> None:
        node.stub.state.init, node.stub.state.starting = 0, 1

    rows = node.run(50, {3: hang, 30: lambda: setattr(node.stub.state, "starting", 0)})
    assert 5 < len(rows) < 30
    assert sum("does not come back" in message for message in warnings(caplog)) == 1


@pytest.mark.parametrize("driver", ["", "vfio-pci"])
def test_a_node_without_gpus_of_its_own_is_quiet_until_it_has_a_driver(
    node: Node, caplog: pytest.LogCaptureFixture, driver: str
) -> None:
    if driver:
        node.add_gpu(driver)
    node.stub.state.init = 9
    quiet: list[list[str]] = []

    def load() -> None:
        quiet.append(warnings(caplog))
        node.load_driver()

    rows = node.run(40, {10: lambda: setattr(node.stub.state, "init", 0), 25: load})
    assert quiet == [[]]
    assert 5 < len(rows) < 16


def test_nvml_that_is_switched_off_stays_so(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.add_gpu()
    assert node.run(20, {}, disabled=("nvml",)) == []
    assert warnings(caplog) == []


def test_gpus_that_come_after_the_end_are_let_go(node: Node) -> None:
    node.add_gpu()
    node.stub.state.init = 9
    export = ExportConfig(metrics_listen="127.0.0.1:0")
    running = set(threading.enumerate())
    setup = Setup(Config(agent=AgentConfig(root=str(node.root), export=export)), "n1")
    node.stub.state.init, node.stub.state.starting = 0, 1
    for minute in (0, 1):
        setup.look_again(minute * 60 * S)
    assert "nvml-open" in {thread.name for thread in threading.enumerate()}
    setup.close()
    node.stub.state.starting = 0
    deadline = time.monotonic() + 20
    while set(threading.enumerate()) - running:  # none that waits for events, either
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


@pytest.mark.parametrize("before", [(), ("nvml",)], ids=["absent", "switched off"])
def test_a_start_of_nvml_that_hangs_stops_no_change_of_the_configuration(
    node: Node, before: tuple[Literal["nvml"], ...]
) -> None:
    export, running = ExportConfig(metrics_listen="127.0.0.1:0"), set(threading.enumerate())
    agent = AgentConfig(root=str(node.root), export=export)
    node.stub.state.init = 9
    setup = Setup(Config(agent=replace(agent, disabled=before)), "n1")
    node.stub.state.init, node.stub.state.starting = 0, 1
    change = threading.Thread(target=setup.change, args=(Config(agent=replace(agent, zone="DE")),))
    change.start()
    change.join(20)
    in_time = not change.is_alive()
    for minute in range(2):
        setup.look_again(minute * 60 * S)
    node.stub.state.starting = 0
    change.join()
    assert in_time
    deadline = time.monotonic() + 20
    while "nvml" not in {one.name for one in setup.collectors}:
        assert time.monotonic() < deadline
        setup.look_again(0)
        time.sleep(0.01)
    assert setup.change(Config(agent=replace(agent, disabled=("nvml",)))) == "changed: agent.zone, agent.disabled"
    setup.close()
    while set(threading.enumerate()) - running:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
