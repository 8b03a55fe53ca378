"""From the kernel log to events: the reader, the counts and the verdicts."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer
from tests.brokers.embedded import EmbeddedBroker
from tests.collectors.agent.agent_tools import TOPICS, FakeTime
from tests.nvml_stub.stub import NvmlStub

from flyball_collectors.agent import run_agent
from flyball_collectors.agent.diagnosis.doctor import Finding, explain
from flyball_collectors.base import Parts, Reading
from flyball_collectors.kmsg import KernelLog, open_kmsg
from flyball_collectors.kmsg.burst import Burst
from flyball_collectors.kmsg.collector import fault_of
from flyball_collectors.kmsg.fault import Fault
from flyball_collectors.kmsg.reader import KmsgReader
from flyball_collectors.kmsg.record import LogRecord
from flyball_collectors.nvml import Absent
from flyball_contracts.codec import decode_message
from flyball_contracts.config import AgentConfig, Config, KafkaConfig
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.records import NodeEvent
from flyball_contracts.topics import EVENTS

S = 1_000_000_000
T = 1_700_000_000 * S
REAL = Path("/dev/kmsg")


def soon(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done() and time.monotonic() < deadline:
        time.sleep(0.002)
    assert done()


class Log:
    """A kernel log that the test writes: a pipe, which keeps records whole as the device does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequence = 100
        os.mkfifo(path)
        self._file = os.open(path, os.O_RDWR)

    def write(self, *texts: str, priority: int = 4) -> None:
        for text in texts:
            self.raw(f"{priority},{self.sequence},5000000,-;{text}\n SUBSYSTEM=pci\n".encode())
            self.sequence += 1

    def raw(self, data: bytes) -> None:
        os.write(self._file, data)

    def close(self) -> None:
        os.close(self._file)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "dev").mkdir()
    found = Log(tmp_path / "dev/kmsg")
    yield found
    found.close()


@pytest.fixture
def kernel(log: Log, tmp_path: Path) -> Iterator[KernelLog]:
    found = open_kmsg("n1", tmp_path)
    assert isinstance(found, KernelLog)
    yield found
    found.close()
    found.close()


def reported(kernel: KernelLog, log: Log, *texts: str) -> list[NodeEvent]:
    """Events of some lines, all of which were read."""
    before = kernel.reader.read
    log.write(*texts)
    soon(lambda: kernel.reader.read == before + len(texts))
    return kernel.events()


def test_a_line_becomes_an_event(kernel: KernelLog, log: Log) -> None:
    (event,) = reported(kernel, log, "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=py, GPU has fallen off the bus.")
    assert (event.kind, event.device, event.code) == ("xid", "PCI:0000:3b:00", 79)
    assert (event.severity, event.remedy) == ("critical", "reboot")
    assert event.message == "XID 79: fallen off the bus; in py[7]; GPU has fallen off the bus"
    assert kernel.events() == []


def test_a_storm_is_one_event_with_an_exact_count(kernel: KernelLog, log: Log) -> None:
    events: list[NodeEvent] = []
    for first in range(0, 10_000, 500):
        lines = [
            f"NVRM: Xid (PCI:0000:{3 + i % 2:02x}:00): 45, pid={i}, name=p, Ch 1" for i in range(first, first + 500)
        ]
        events += reported(kernel, log, *lines)
    assert len(events) == 40
    assert sum(int(event.message.split(" times")[0].split()[-1]) for event in events) == 10_000
    assert events[0].message == (
        "XID 45: channels cleaned up after another error, 250 times; in p[0] and many more; Ch 1"
    )  # fmt: skip


def test_the_second_line_about_a_lost_gpu_does_not_count(kernel: KernelLog, log: Log) -> None:
    gone = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
    (alone,) = reported(kernel, log, gone)
    assert (alone.code, alone.message) == (79, "XID 79: fallen off the bus")
    (both,) = reported(kernel, log, gone, "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=py, GPU has gone", gone)
    assert both.message == "XID 79: fallen off the bus; in py[7]; GPU has gone"


NETIR = "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT {} XC0 i0 Link 08 (0x004505c6 0x00000000)"
DOWN = "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x{:04x}05c6 0x00000000)"
SXID = "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, {}, Link 30 sourcetrack timeout error"
VERDICTS = [
    (NETIR.format("Fatal"), "critical", "drain"),
    (NETIR.format("Nonfatal"), "warning", "notify"),
    (DOWN.format(0x0280), "warning", "notify"),
    (DOWN.format(0x00A0), "critical", "drain"),
    (DOWN.format(0x0250), "warning", "reset_gpu"),
    (DOWN.format(0x0210), "warning", "reset_gpu"),
    (
        "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_MFDE_EVENT Nonfatal XC0 i0 Link -1 (0x00002846 0x00000003)",
        "info",
        "none",
    ),
    (SXID.format("Fatal"), "critical", "drain"),
    (SXID.format("Non-fatal"), "warning", "notify"),
    ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (X)", "critical", "reboot"),
    ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (X) to 0x0 (None)", "info", "none"),
    ("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=p, Ch 1 caused by previous Xid 149", "info", "none"),
    ("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=p, Ch 1", "warning", "notify"),
    ("NVRM: Xid (what): is this", "warning", "unknown"),
    ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): what", "warning", "unknown"),
    ("EDAC MC0: 1 UE memory read error on DIMM_A (x)", "critical", "drain"),
    ("EDAC MC0: 1 CE memory read error on DIMM_A (x)", "info", "none"),
    ("nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=X, (Y)", "critical", "drain"),
    ("nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=X, (Y)", "warning", "notify"),
    ("Out of memory: Killed process 4321 (python3) total-vm:1kB", "warning", "restart_app"),
]


@pytest.mark.parametrize(("text", "severity", "remedy"), VERDICTS)
def test_what_a_line_requires(kernel: KernelLog, log: Log, text: str, severity: str, remedy: str) -> None:
    (event,) = reported(kernel, log, text)
    assert (event.severity, event.remedy) == (severity, remedy)


def test_fatal_and_other_errors_of_one_code_are_two_events(kernel: KernelLog, log: Log) -> None:
    events = reported(kernel, log, NETIR.format("Nonfatal"), NETIR.format("Fatal"), NETIR.format("Nonfatal"))
    assert [(event.severity, "2 times" in event.message) for event in events] == [
        ("warning", True),
        ("critical", False),
    ]


def exception(process: int, *places: tuple[int, int]) -> list[str]:
    return [
        f"NVRM: Xid (PCI:0000:3b:00): 13, pid={process}, name=p, Graphics Exception on (GPC {gpc}, TPC {tpc}, SM 0): X"
        for gpc, tpc in places
    ]


def test_exceptions_that_keep_to_one_place_are_the_chips(kernel: KernelLog, log: Log) -> None:
    def remedies(*lines: str) -> list[str]:
        return [event.remedy for event in reported(kernel, log, *lines)]

    assert remedies(*exception(1, (0, 1))) == ["restart_app"]
    assert remedies(*exception(1, (0, 1), (0, 1))) == ["restart_app"]  # the same process goes on failing
    assert remedies(*exception(2, (0, 1), (3, 4))) == ["restart_app"]  # all over the chip
    assert remedies(*exception(3, (0, 2))) == ["restart_app"]
    assert remedies(*exception(4, (0, 1))) == ["notify"]


def test_what_processes_write_is_not_heeded(kernel: KernelLog, log: Log) -> None:
    log.write("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", priority=12)
    soon(lambda: kernel.reader.read == 1)
    assert kernel.events() == []


def test_overwritten_records_are_counted_and_reported(kernel: KernelLog, log: Log) -> None:
    reported(kernel, log, "one")
    log.sequence += 7
    log.raw(b"not a record\n")
    (event,) = reported(kernel, log, "another")
    assert (event.kind, event.severity) == ("records_dropped", "warning")
    assert event.message.startswith("7 records of the kernel log")
    assert (kernel.reader.missed, kernel.reader.strange) == (7, 1)
    assert kernel.events() == []


def test_an_overrun_goes_on_with_what_is_left(log: Log) -> None:
    errors = [OSError(errno.EPIPE, "overrun"), OSError(errno.EPIPE, "overrun")]

    def read(file: int, size: int) -> bytes:
        if errors:
            raise errors.pop()
        return os.read(file, size)

    got: list[LogRecord] = []
    reader = KmsgReader(log.path, lambda record, now_ns: got.append(record), read=read)
    log.write("after")
    soon(lambda: len(got) == 1)
    reader.close()
    assert reader.reason == ""


def test_a_log_that_breaks_reports_it(log: Log) -> None:
    def read(file: int, size: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    kernel = KernelLog("n1", log.path, read=read)
    log.write("x")
    soon(lambda: bool(kernel.reader.reason))
    (event,) = kernel.events()
    assert (event.kind, event.severity) == ("records_dropped", "warning")
    assert event.message.startswith("the kernel log cannot be read any more: Input/output error; what it says is not")
    assert kernel.events() == []
    kernel.close()


def test_a_line_that_cannot_be_taken_is_counted(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    def take(record: LogRecord, now_ns: int) -> None:
        if record.text == "bad":
            raise RuntimeError("a fault of ours")

    reader = KmsgReader(log.path, take)
    log.write("bad", "good", "bad")
    soon(lambda: reader.read == 3)
    reader.close()
    assert reader.strange == 2
    assert caplog.text.count("a line of the kernel log is left out: 'bad'") == 1


def test_a_log_that_ends_costs_no_core(tmp_path: Path) -> None:
    reads: list[int] = []

    def read(file: int, size: int) -> bytes:
        reads.append(size)
        return os.read(file, size)

    path = tmp_path / "empty"
    path.write_bytes(b"4,1,2,-;before the start\n")
    reader = KmsgReader(path, lambda record, now_ns: None, read=read)
    soon(lambda: len(reads) == 2)
    reader.close()
    assert reader.read == 0


def test_no_log_is_no_fault(tmp_path: Path) -> None:
    absent = open_kmsg("n1", tmp_path)
    assert isinstance(absent, Absent)
    assert "there is no" in absent.reason
    assert "CAP_SYSLOG" in absent.remedy


def test_the_real_log_is_read_from_its_end_or_it_is_reported_why_not() -> None:
    got: list[LogRecord] = []
    try:
        reader = KmsgReader(REAL, lambda record, now_ns: got.append(record))
    except OSError:
        assert isinstance(open_kmsg("n1", Path("/")), Absent)
        return
    text = f"flyball test {time.monotonic_ns()}"
    try:
        REAL.write_text(f"{text}\n")
        soon(lambda: any(record.text == text for record in got))
        assert not next(record for record in got if record.text == text).by_kernel
    except PermissionError:  # who may read it may not write to it
        pass
    finally:
        reader.close()
    assert not any(record.sequence == 0 for record in got)


def test_the_memory_of_a_burst_is_bounded() -> None:
    burst = Burst()
    for pid in range(10_000):
        burst.add(Fault("oom_kill", subject=f"p[{pid}]", process=f"p[{pid}]"), T)
    tallies = burst.drain()
    assert len(tallies) == 257
    assert sum(tally.times for tally in tallies) == 10_000


def test_the_parsers_are_quick() -> None:
    """Not a benchmark: a pattern that explodes would take minutes."""
    for text in (
        "NVRM: Xid (PCI:" + "0" * 5000,
        "EDAC MC0: 1 CE " + "(" * 5000,
        "Out of memory: Killed process 1 (" * 500,
    ):
        fault_of(text)


def test_the_agent_reports_what_the_kernel_says(
    log: Log, tmp_path: Path, embedded_broker: Callable[..., EmbeddedBroker], nvml_stub: NvmlStub
) -> None:
    broker = embedded_broker(TOPICS)
    (tmp_path / "proc").mkdir()
    settings = AgentConfig(
        node="n1", root=str(tmp_path), state_dir=str(tmp_path / "s"), period_s=0.05, disabled=("host",)
    )
    config = Config(kafka=KafkaConfig(bootstrap=broker.bootstrap), agent=settings)
    stop = threading.Event()
    agent = threading.Thread(target=run_agent, args=(config,), kwargs={"stop": stop})
    agent.start()
    consumer = Consumer(consumer_settings(broker.bootstrap, group="test", client_id="test"))
    consumer.subscribe([EVENTS.name])
    events: list[NodeEvent] = []

    def receive() -> bool:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
            record = decode_message(EVENTS.name, message.value(), headers)
            assert isinstance(record, NodeEvent)
            events.append(record)
        return any(event.kind == "xid" for event in events)

    try:
        soon(lambda: receive() or bool(events))
        log.write(f"NVRM: Xid (PCI:0000:{nvml_stub.gpu().bus:02x}:00): 48, pid=7, name=py, DBE")
        nvml_stub.happen(0x8, 48)
        soon(receive)
    finally:
        stop.set()
        agent.join()
        consumer.close()
    event = next(event for event in events if event.kind == "xid")
    assert (event.device[:4], event.code, event.remedy) == ("GPU-", 48, "drain")
    assert event.message == "XID 48: double-bit ECC error; in py[7]; DBE"


def test_the_doctor_reports_whether_the_log_can_be_read(log: Log, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    config = Config(agent=AgentConfig(root=str(tmp_path), disabled=("host", "nvml")))

    def finding() -> Finding:
        return next(finding for finding in explain(config, wait=lambda seconds: None) if finding.name == "kmsg")

    assert finding().ok
    log.path.unlink()
    assert "CAP_SYSLOG" in finding().remedy


class Request:
    """A collector that notes when it is requested events."""

    name = "request"

    def __init__(self, time: FakeTime) -> None:
        self.at_ns: list[int] = []
        self._time = time

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        return []

    def parts(self) -> Parts:
        return Parts()

    def events(self) -> list[NodeEvent]:
        self.at_ns.append(self._time.now_ns)
        return []

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("period_s", [0.3, 1.0, 10.0])
def test_an_event_waits_for_no_tick(
    tmp_path: Path, embedded_broker: Callable[..., EmbeddedBroker], period_s: float
) -> None:
    broker = embedded_broker(TOPICS)
    time = FakeTime()
    request = Request(time)
    settings = AgentConfig(node="n1", state_dir=str(tmp_path), period_s=period_s, spool_bytes=0)
    config = Config(kafka=KafkaConfig(bootstrap=broker.bootstrap), agent=settings)
    run_agent(
        config, stop=threading.Event(), max_ticks=5, collectors=[request], clock=time.clock, wait=time.wait
    )  # fmt: skip
    gaps = [later - earlier for earlier, later in pairwise(request.at_ns)]
    assert max(gaps) <= S // 2 + 1
    assert sum(gaps) == round(4 * period_s * S)


WHOSE = [
    (DOWN.format(0x0250), "from the device at the other end of the link"),
    (DOWN.format(0x0020), "by the signal on the link: cable, connector or switch port"),
    (DOWN.format(0x02A0), "by the signal on the link: cable, connector or switch port"),
    (DOWN.format(0x00F0), "as a driver, a host or an operator took the link down"),
    ("NVRM: Xid (PCI:0000:3b:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x1)", "by the signal on"),
    (
        "NVRM: Xid (PCI:0000:3b:00): 145, RLW_SRC_TRACK Fatal XC0 i0 Link 12 (0x040988e2 0x00000010)",
        "in the GPU itself",
    ),
    ("NVRM: Xid (PCI:0000:3b:00): 150, MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x0)", "in the GPU itself"),
]


@pytest.mark.parametrize(("text", "whose"), WHOSE)
def test_an_error_of_a_link_names_whose_it_is(kernel: KernelLog, log: Log, text: str, whose: str) -> None:
    (event,) = reported(kernel, log, text)
    assert whose in event.message


def test_what_a_link_lost_by_its_peer_and_by_its_cable_are_two_events(kernel: KernelLog, log: Log) -> None:
    found = reported(kernel, log, DOWN.format(0x0250), DOWN.format(0x0020), DOWN.format(0x0250))
    assert [(e.severity, e.remedy) for e in found] == [("warning", "reset_gpu"), ("critical", "drain")]
    assert "2 times" in found[0].message
