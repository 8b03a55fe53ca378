"""The whole way: servers on loopback, the agent, the embedded broker, and frames whose rows are the allocations."""

import math
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from confluent_kafka import Consumer
from numpy.typing import NDArray
from tests.brokers.embedded import EmbeddedBroker
from tests.collectors.workload.workload_pages import Work, vllm
from tests.collectors.workload.workload_server import page_server, until

from flyball_collectors.agent import run_agent
from flyball_collectors.agent.diagnosis.doctor import explain
from flyball_collectors.agent.inventory import lay_out, merge_allocations
from flyball_collectors.base import KeyedReading, Parts, Reading
from flyball_collectors.parameters import AgentParameters, WorkloadsParameters
from flyball_collectors.workload import WorkloadCollector
from flyball_contracts.codec import decode_message
from flyball_contracts.config import AttributionConfig, Config, KafkaConfig
from flyball_contracts.config.attribution import NamingRule
from flyball_contracts.config.workload import LogSettings, TargetSettings
from flyball_contracts.errors import ConfigError
from flyball_contracts.frame import Frame
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.metrics import SERVING, USAGE, WORKLOAD
from flyball_contracts.records import Allocation, Inventory, NodeEvent
from flyball_contracts.topics import EVENTS, INVENTORY, TELEMETRY

TOPICS = {TELEMETRY.name: 1, EVENTS.name: 1, INVENTORY.name: 1}
Key = tuple[str, str]


def at(row: Sequence[float] | NDArray[np.float32], key: str) -> float:
    return float(row[WORKLOAD.column(f"flyball.workload.{key}")])


def test_allocations_of_several_collectors_are_one_each() -> None:
    reported = Allocation(workload="w", replica="b")
    pod = Allocation(workload="w", replica="b", runtime="kubernetes")
    devices = Allocation(workload="w", replica="b", devices=(1,))
    other = Allocation(workload="v", replica="z")
    assert merge_allocations([(reported, other), (pod,)]) == (other, pod)
    assert merge_allocations([(pod,), (devices,), (reported,)]) == (devices,)
    assert merge_allocations([(other,), (reported,)]) == merge_allocations([(reported,), (other,)])


def test_rows_are_laid_out_in_the_order_of_the_allocations() -> None:
    a, b, c = (Allocation(workload="w", replica=name) for name in "abc")
    row = np.arange(len(USAGE), dtype=np.float32)
    reading = lay_out(KeyedReading(USAGE.schema, {("w", "c"): row, ("w", "gone"): row}), (a, b, c))
    assert reading.values.shape == (3, len(USAGE))
    assert np.isnan(reading.values[:2]).all()
    assert np.array_equal(reading.values[2], row)


def test_settings_that_cannot_work() -> None:
    one = TargetSettings(workload="w", url="http://127.0.0.1:1", server="vllm")
    with pytest.raises(ConfigError, match=r"targets\[1\]: workload 'w' has a replica 'n1' already"):
        WorkloadCollector(WorkloadsParameters(targets=(one, one)), "n1")
    with pytest.raises(ConfigError, match=r"logs\[0\]\.pattern: "):
        WorkloadCollector(WorkloadsParameters(logs=(LogSettings(workload="w", path="/x", pattern="x"),)), "n1")


def test_the_doctor_reports_who_does_not_answer(tmp_path: Path) -> None:
    with page_server() as server, page_server() as other:
        server.respond("/health")
        server.respond("/metrics", vllm(Work()))
        targets = (
            TargetSettings(workload="w", replica="well", url=server.url, server="vllm"),
            TargetSettings(workload="w", replica="ill", url=other.url, server="vllm"),
        )
        logs = (LogSettings(workload="ft", replica="0", path=str(tmp_path / "none"), pattern="(?P<step>1)"),)
        workloads = WorkloadsParameters(period_s=0.05, targets=targets, logs=logs)
        settings = AgentParameters(node="n1", workloads=workloads, disabled=("host", "nvml"))

        def wait(seconds: float) -> None:
            del seconds
            until(lambda: len(server.requests) > 2 and len(other.requests) > 1)  # the second time: the first has ended

        found = {one.name: one for one in explain(Config(agent=settings), wait=wait)}
    assert found["workload"].detail == "3 replicas are known"
    assert "workload.w/well" not in found
    assert found["workload.w/ill"].detail == f"{other.url}/health: status 404"
    assert found["workload.w/ill"].remedy == "check url"
    assert found["workload.ft/0"].remedy == "check path, and that the agent's user may read it"


def test_lines_and_logs_are_rows(tmp_path: Path) -> None:
    now_s = [1000.0]
    log = tmp_path / "a.log"
    log.write_text("step 5 of 20: 0.25 s\n")
    config = WorkloadsParameters(
        listen=f"unix://{tmp_path}/t.sock",
        logs=(
            LogSettings(
                workload="ft", path=str(log), pattern=r"step (?P<step>\d+) of (?P<steps>\d+): (?P<step_time_s>\S+)"
            ),
        ),
    )
    rules = AttributionConfig(rules=(NamingRule(match={"runtime": "*"}, workload="rl"),))
    collector = WorkloadCollector(config, "n1", attribution=rules, clock=lambda: now_s[0])
    try:
        (first,) = collector.read(0, 1)
        assert at(first.rows["ft", "n1"], "step.time") == 0.25
        assert at(first.rows["ft", "n1"], "progress") == 0.25
        assert at(first.rows["ft", "n1"], "ready") == 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"training,workload=rl step=7,loss=0.5,samples_per_s=64", f"{tmp_path}/t.sock")
            sender.sendto(b"training,workload=rl,replica=r1 step=9\nnonsense", f"{tmp_path}/t.sock")
        (second,) = collector.read(0, 1)
        assert set(second.rows) == {("ft", "n1"), ("rl", "n1"), ("rl", "r1")}
        assert at(second.rows["rl", "n1"], "work.rate") == 64
        assert at(second.rows["rl", "n1"], "loss") == 0.5
        assert collector.errors == 1
        assert len(collector.parts().allocations) == 3
        now_s[0] += config.silent_s + 1
        (third,) = collector.read(0, 1)
        assert set(third.rows) == {("ft", "n1")}
        assert np.isnan(third.rows["ft", "n1"]).all()
        assert [a.workload for a in collector.parts().allocations] == ["ft"]
    finally:
        collector.close()


class Known:
    """A collector that knows of allocations by itself, as attribution does; one of them has a server, too."""

    name = "known"

    def read(self, now_ns: int, period_ns: int) -> list[Reading | KeyedReading]:
        del now_ns, period_ns
        return [KeyedReading(USAGE.schema, {("aaa", "0"): np.ones(len(USAGE), np.float32)})]

    def parts(self) -> Parts:
        one = Allocation(workload="chat", replica="chat-0", devices=(0, 1), runtime="kubernetes")
        return Parts(allocations=(one, Allocation(workload="aaa", replica="0")))

    def events(self) -> list[NodeEvent]:
        return []

    def close(self) -> None:
        pass


class Listener:
    """Reads the agent's topics in a thread, and checks that each frame has the rows of its inventory."""

    def __init__(self, bootstrap: str) -> None:
        self.rows: dict[Key, list[list[float]]] = {}
        self.schemas: list[int] = []
        self.inventories: dict[int, Inventory] = {}
        self.wrong: list[str] = []
        self._waiting: list[Frame] = []
        self._consumer = Consumer(consumer_settings(bootstrap, group="test", client_id="test"))
        self._consumer.subscribe(list(TOPICS))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def last(self, key: Key) -> Sequence[float]:
        rows = self.rows.get(key)
        return rows[-1] if rows else [math.nan] * len(WORKLOAD)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
            record = decode_message(str(message.topic()), message.value(), headers)
            if isinstance(record, Inventory):
                self.inventories[record.epoch] = record
            elif isinstance(record, Frame):
                self._waiting.append(record)
            self._waiting = [frame for frame in self._waiting if not self._take(frame)]

    def _take(self, frame: Frame) -> bool:
        inventory = self.inventories.get(frame.inventory_epoch)
        if inventory is None:
            return False
        self.schemas.append(frame.schema)
        if frame.schema in (WORKLOAD.schema, USAGE.schema) and frame.rows != len(inventory.allocations):
            self.wrong.append(f"{frame.rows} rows, {len(inventory.allocations)} allocations")
        if frame.schema == WORKLOAD.schema:
            for one, values in zip(inventory.allocations, frame.values.tolist(), strict=True):
                self.rows.setdefault((one.workload, one.replica), []).append(values)
        return True


class Busy:
    """A server that has done one request more each time it is queried."""

    def __init__(self) -> None:
        self.work = Work([0.4] * 10, tokens_in=1000, tokens_out=1000, active=2, queued=1)

    def __call__(self) -> str:
        done = self.work
        self.work = done._replace(
            latencies_s=[*done.latencies_s, 0.4], tokens_in=done.tokens_in + 100, tokens_out=done.tokens_out + 10
        )
        return vllm(self.work)


@contextmanager
def agent(bootstrap: str, state_dir: Path, workloads: WorkloadsParameters) -> Generator[Listener]:
    """An agent that runs, and what it logs."""
    stop = threading.Event()
    settings = AgentParameters(
        node="n1", state_dir=str(state_dir), period_s=0.1, spool_bytes=0, disabled=("host", "nvml")
    )
    config = Config(kafka=KafkaConfig(bootstrap=bootstrap), agent=settings)
    collectors = [Known(), WorkloadCollector(workloads, "n1")]
    runs = threading.Thread(target=run_agent, args=(config,), kwargs={"stop": stop, "collectors": collectors})
    listener = Listener(bootstrap)
    runs.start()
    try:
        yield listener
    finally:
        stop.set()
        runs.join()
        listener.close()


def test_a_server_is_reported_while_it_is_there(embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    key = ("chat", "chat-0")
    with ExitStack() as stack:
        first = stack.enter_context(page_server())
        port = int(first.url.rpartition(":")[2])
        target = TargetSettings(
            workload="chat",
            replica="chat-0",
            server="vllm",
            url=first.url,
            token_weights=(1.0, 3.0),
        )
        workloads = WorkloadsParameters(period_s=0.2, timeout_s=5.0, targets=(target,))
        busy = Busy()
        first.respond("/health")
        first.replies["/metrics"] = busy
        with agent(embedded_broker(TOPICS).bootstrap, tmp_path, workloads) as listener:
            until(lambda: at(listener.last(key), "request.rate") > 0)
            assert at(listener.last(key), "request.active") == 2
            assert at(listener.last(key), "ready") == 1
            first.respond("/metrics", vllm(busy.work._replace(failed=3, queued=6)))
            until(lambda: at(listener.last(key), "request.queued") == 6)
            stack.close()
            until(lambda: at(listener.last(key), "ready") == 0)
            assert math.isnan(at(listener.last(key), "request.active"))
            assert math.isnan(at(listener.last(key), "work.rate"))
            with page_server(port=port) as again:
                again.respond("/health")
                again.respond("/metrics", vllm(Work(active=9)))
                until(lambda: at(listener.last(key), "request.active") == 9)
                assert at(listener.last(key), "ready") == 1
    assert listener.wrong == []
    inventory, *_ = listener.inventories.values()  # one that announces the stop may follow
    names = [(one.workload, one.replica, one.devices) for one in inventory.allocations]
    assert names == [("aaa", "0", ()), ("chat", "chat-0", (0, 1))]
    assert {WORKLOAD.schema, USAGE.schema, SERVING.schema} == set(listener.schemas)
    assert all(np.isnan(row).all() for row in listener.rows["aaa", "0"])
    rows = listener.rows[key]
    failed = [at(row, "errors") for row in rows]
    assert sum(count for count in failed if count == count) == 3
    known = [row for row in rows if at(row, "request.rate") > 0 and at(row, "request.queued") == 1]
    assert known
    for row in known:  # the ratios are exact, whatever the time between two scrapes was
        requests = at(row, "request.rate")
        assert at(row, "token.rate{kind=input}") == pytest.approx(100 * requests)
        assert at(row, "token.rate{kind=output}") == pytest.approx(10 * requests)
        assert at(row, "work.rate") == pytest.approx(130 * requests)
        assert at(row, "latency{stat=mean}") == pytest.approx(0.4)
        assert at(row, "latency{stat=p99}") == pytest.approx(0.3 + 0.2 * 0.99)
