"""The sink writes what is on the topics, once the server takes it, and says what it could not write."""

import gzip
import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import ConfigError, TransportError
from flyball_contracts.frame import make_frame
from flyball_contracts.kafka import consumer_settings, producer_settings
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Allocation, Demand, DemandTick, Device, Inventory, Outcome, Tick
from flyball_contracts.topics import DEAD_LETTERS, TELEMETRY, TOPICS
from flyball_streams.sinks import SinkReport, run_influx_sink
from flyball_streams.sinks.parameters import InfluxParameters

Start = Callable[..., EmbeddedBroker]
S = 1_000_000_000
START_NS = 1_700_000_000 * S
TOKEN = "FLYBALL_TEST_TOKEN"
TICKS = 20
BROKEN = Message(TELEMETRY.name, b"n", b"not a frame", [("why", b"test")])


class Server:
    """A v2 write API that answers as told: a list of statuses for the first requests, then 204.

    A request with a line that contains ``reject`` is answered 400, as InfluxDB does.
    """

    def __init__(self, statuses: list[int], reject: str = "") -> None:
        self.statuses = statuses
        self.lines: list[str] = []
        self.queries: list[dict[str, list[str]]] = []
        self.refused = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.queries.append(urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query))
                lines = body.decode().splitlines()
                status = outer.statuses.pop(0) if outer.statuses else 204
                if status == 204 and reject and any(reject in line for line in lines):
                    status = 400
                if status == 204:
                    outer.lines += lines
                else:
                    outer.refused.set()
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Callable[..., Server]]:
    running: list[Server] = []

    def start(statuses: list[int], reject: str = "") -> Server:
        running.append(Server(statuses, reject))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "secret")
    monkeypatch.setattr("flyball_streams.sinks.writer._FIRST_WAIT_S", 0.01)
    monkeypatch.setattr("flyball_streams.sinks.writer._LONGEST_WAIT_S", 0.05)


@pytest.fixture
def kafka(embedded_broker: Start) -> KafkaConfig:
    broker = embedded_broker({name: 2 for name in TOPICS})
    return KafkaConfig(bootstrap=broker.bootstrap, client={"session.timeout.ms": "6000"})


def produce(kafka: KafkaConfig, messages: list[Message]) -> None:
    client = Producer(producer_settings(kafka.bootstrap, client_id="test"))
    for m in messages:
        client.produce(m.topic, m.value, m.key, headers=list(m.headers))
        client.poll(0)
    assert client.flush(30) == 0


def story() -> list[Message]:
    devices = tuple(Device(id=f"n/{i}", model="m", memory_bytes=1) for i in range(2))
    allocation = Allocation(workload="w", replica="r", devices=(0,))
    node = Inventory(
        node="n", cell="c", epoch=1, time_ns=START_NS, boot_id="b", devices=devices, allocations=(allocation,)
    )
    messages = [record_message(node, "/test")]
    for t in range(TICKS):
        values = np.full((2, len(GPU)), np.nan, np.float32)
        values[:, GPU.column("hw.power")] = (t + 100, t + 200)
        counts = {"epoch": 1, "seq": t, "period_ns": S, "inventory_epoch": 1}
        time_ns = START_NS + t * S
        messages.append(
            frame_message(make_frame(values, schema=GPU.schema, node="n", boot_id="b", time_ns=time_ns, **counts))
        )
    tick = Tick(index=START_NS // S, period_ns=S)
    requested = Demand(workload="w", replicas=1, ready=1, devices=1, work_rate=2.5)
    demand = DemandTick(cell="c", source="s", tick=tick, partition=0, demands=(requested,))
    outcome = Outcome(
        id="o", decision="d", type="Scale", target="t", cell="c", workload="w", time_ns=START_NS, status="done",
        mode="dry_run", driver="dry_run", effect_after_s=1.5,
    )  # fmt: skip
    return [*messages, record_message(demand, "/test"), record_message(outcome, "/test")]


STORED = TICKS + 2  # messages; the inventory is read aside
LINES = 2 * TICKS + 2


def run_until(kafka: KafkaConfig, influx: InfluxParameters, messages: int) -> SinkReport:
    """Run the sink until it has dealt with so many messages."""
    stop = threading.Event()

    def note(done: int, _all: int) -> None:
        if done >= messages:
            stop.set()

    timer = threading.Timer(60, stop.set)
    timer.start()
    try:
        return run_influx_sink(kafka, influx, stop=stop, progress=note)
    finally:
        timer.cancel()
        timer.join()


def config(url: str) -> InfluxParameters:
    return InfluxParameters(url=url, org="o", bucket="b", token_env=TOKEN)


def test_all_lines_arrive_and_are_counted(kafka: KafkaConfig, server: Callable[..., Server]) -> None:
    produce(kafka, story())
    there = server([])
    report = run_until(kafka, config(there.url), STORED)
    assert report == SinkReport(messages=STORED, lines=LINES)
    assert len(there.lines) == LINES
    powers = [line for line in there.lines if line.startswith("hw.gpu,")]
    assert sorted(powers) == sorted(
        line
        for t in range(TICKS)
        for line in (
            f"hw.gpu,cell=c,device=n/0,model=m,node=n,replica=r,workload=w hw.power={t + 100} {START_NS + t * S}",
            f"hw.gpu,cell=c,device=n/1,model=m,node=n hw.power={t + 200} {START_NS + t * S}",
        )
    )
    assert there.queries[0] == {"org": ["o"], "bucket": ["b"], "precision": ["ns"]}


def test_a_server_that_is_away_is_requested_again_and_nothing_is_lost(
    kafka: KafkaConfig, server: Callable[..., Server]
) -> None:
    produce(kafka, story())
    there = server([503, 500, 429])
    report = run_until(kafka, config(there.url), STORED)
    assert (report.messages, report.lines, report.retries, report.rejected) == (STORED, LINES, 3, 0)
    assert len(there.lines) == len(set(there.lines)) == LINES


def test_stopped_while_the_server_is_away_it_commits_nothing(kafka: KafkaConfig, server: Callable[..., Server]) -> None:
    produce(kafka, story())
    away = server([503] * 10_000)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_influx_sink, kafka, config(away.url), stop=stop)
        try:
            assert away.refused.wait(60)
        finally:
            stop.set()
        report = running.result(60)
    assert (report.messages, report.lines) == (0, 0)
    assert report.retries > 0
    there = server([])
    assert run_until(kafka, config(there.url), STORED).lines == LINES


def test_a_rejected_line_costs_no_other(kafka: KafkaConfig, server: Callable[..., Server]) -> None:
    produce(kafka, story())
    there = server([], reject="hw.power=203")
    report = run_until(kafka, config(there.url), STORED)
    assert (report.messages, report.lines, report.rejected) == (STORED, LINES - 1, 1)
    assert len(there.lines) == LINES - 1


def test_what_cannot_be_read_becomes_a_dead_letter(kafka: KafkaConfig, server: Callable[..., Server]) -> None:
    produce(kafka, [*story(), BROKEN])
    report = run_until(kafka, config(server([]).url), STORED + 1)
    assert (report.messages, report.lines, report.undecodable) == (STORED + 1, LINES, 1)
    settings = consumer_settings(kafka.bootstrap, group="letters", client_id="test")
    reader = Consumer(settings)
    reader.assign([TopicPartition(DEAD_LETTERS.name, p, 0) for p in range(2)])
    (letter,) = reader.consume(1, 30)
    reader.close()
    assert (letter.key(), letter.value()) == (BROKEN.key, BROKEN.value)
    headers: Any = letter.headers()
    assert header(headers, "__connect.errors.topic") == TELEMETRY.name
    assert header(headers, "__connect.errors.stage") == "influx sink"
    assert header(headers, "why") == "test"


def test_a_frame_without_inventory_is_written_by_row_and_counted(
    kafka: KafkaConfig, server: Callable[..., Server]
) -> None:
    produce(kafka, story()[1:])
    there = server([])
    report = run_until(kafka, config(there.url), STORED)
    assert (report.lines, report.unnamed_frames) == (LINES, TICKS)
    assert sum(line.startswith("hw.gpu,node=n,row=1 ") for line in there.lines) == TICKS


@pytest.mark.parametrize(("status", "says"), [(401, "the token is refused"), (404, "no such bucket or organisation")])
def test_what_the_operator_must_change_is_published(
    kafka: KafkaConfig, server: Callable[..., Server], status: int, says: str
) -> None:
    produce(kafka, story())
    there = server([status])
    with pytest.raises(ConfigError, match=rf"{says} \(bucket 'b', organisation 'o', token from {TOKEN}\)"):
        run_until(kafka, config(there.url), STORED)


def test_missing_settings_are_named(kafka: KafkaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    with pytest.raises(ConfigError, match=r"influx\.url is not set"):
        run_influx_sink(kafka, InfluxParameters(token_env=TOKEN), stop=stop)
    monkeypatch.delenv(TOKEN)
    with pytest.raises(ConfigError, match=f"{TOKEN} holds no token"):
        run_influx_sink(kafka, config("http://127.0.0.1:1"), stop=stop)


def test_an_absent_broker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_streams.sinks.inventories._RESPONSE_S", 0.5)
    nowhere = KafkaConfig(bootstrap="127.0.0.1:1", client={"log_level": "0"})
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:1"):
        run_influx_sink(nowhere, config("http://127.0.0.1:1"), stop=threading.Event())


@pytest.mark.integration
def test_a_real_server_holds_what_was_sent(kafka: KafkaConfig, victoria: str) -> None:
    produce(kafka, story())
    report = run_until(kafka, config(victoria), STORED)
    assert (report.lines, report.rejected, report.retries) == (LINES, 0, 0)
    series = {series["metric"]["__name__"] + series["metric"].get("device", ""): series for series in stored(victoria)}
    for row in range(2):
        power = series[f"hw.gpu_hw.powern/{row}"]
        assert power["values"] == [t + 100.0 * (row + 1) for t in range(TICKS)]
        assert power["timestamps"] == [(START_NS + t * S) // 10**6 for t in range(TICKS)]
    assert series["flyball.demand_work_rate"]["values"] == [2.5]
    assert series["flyball.outcome_effect_after_s"]["metric"]["status"] == "done"


def stored(url: str) -> list[dict[str, Any]]:
    urllib.request.urlopen(f"{url}/internal/force_flush", timeout=30).close()
    query = urllib.parse.urlencode({"match[]": '{__name__!=""}'})
    with urllib.request.urlopen(f"{url}/api/v1/export?{query}", timeout=30) as answer:
        return [json.loads(line) for line in answer.read().splitlines()]
