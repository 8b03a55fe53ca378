"""Requests at gateways: over real sockets to rows, and through the agent and the engine to a decision."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import Consumer
from tests.brokers.embedded import EmbeddedBroker
from tests.collectors.gateway.gateway_pages import envoy, interceptor, picker, queue, routed
from tests.collectors.workload.workload_server import page_server, until

from flyball_collectors.agent import run_agent
from flyball_collectors.agent.diagnosis.doctor import explain
from flyball_collectors.gateway import GatewayCollector
from flyball_collectors.parameters import GatewayParameters
from flyball_contracts.codec import decode_record, record_message
from flyball_contracts.config import (
    AgentConfig,
    Config,
    KafkaConfig,
    Series,
    TargetSettings,
    WorkerConfig,
    WorkloadsConfig,
)
from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.metrics import GATEWAY
from flyball_contracts.records import Device, Gateway, Inventory, Scale, WorkloadSpec
from flyball_contracts.topics import DECISIONS, EVENTS, INVENTORY, TELEMETRY, TOPICS
from flyball_streams.engine import Engine, Incoming

QUICK: dict[str, Any] = {"period_s": 0.05, "timeout_s": 5.0}
ANY = Series(arrived=("requests_total",), queued=("waiting",))


def gateway(url: str, **changes: Any) -> GatewayParameters:
    given: dict[str, Any] = {"name": "edge", "kind": "envoy", "workloads": {"chat_v1": "chat"}}
    return GatewayParameters(url=url, **(QUICK | given | changes))


class Row(NamedTuple):
    rate: float
    queued: float
    active: float


def rows(collector: GatewayCollector) -> dict[Gateway, Row]:
    (reading,) = collector.read(0, 1)
    assert reading.schema == GATEWAY.schema
    used = zip(collector.parts().gateways, reading.values.tolist(), strict=True)
    return {gateway: Row(*values) for gateway, values in used}


class Scenario(NamedTuple):
    """A page before the first request and one after it, and what is known of what came in between."""

    settings: Mapping[str, Any]
    path: str
    before: str
    after: str
    arrives: bool
    queued: float
    active: float


def plain(total: int, waiting: int) -> str:
    return f'requests_total{{route="/chat",code="200"}} {total}\nrequests_total{{route="/x"}} 9\nwaiting {waiting}\n'


CHAT_HOST = {"chat.example.org": "chat"}
SCENARIOS = {
    "envoy refuses": Scenario(
        {}, "/stats/prometheus", envoy("chat_v1"), envoy("chat_v1", refused=3), True, queued=0, active=0
    ),
    "envoy holds": Scenario(
        {}, "/stats/prometheus", envoy("chat_v1"), envoy("chat_v1", 5, pending=2, active=1), True, queued=2, active=1
    ),
    "picker": Scenario(
        {"kind": "inference_extension", "workloads": {"llama": "chat"}},
        "/metrics", picker("llama", 0, 0), picker("llama", 4, 3), True, queued=3, active=0,
    ),
    "picker's queue": Scenario(
        {"kind": "inference_extension", "workloads": {"": "chat"}},
        "/metrics", picker("llama", 0, 0), picker("llama", 0, 3), False, queued=3, active=0,
    ),
    "keda": Scenario(
        {"kind": "keda_http", "workloads": CHAT_HOST},
        "/metrics", interceptor("chat.example.org", 0, 0), interceptor("chat.example.org", 2, 3), True, math.nan, 3,
    ),
    "keda's routes": Scenario(
        {"kind": "keda_http", "workloads": {"chat-route": "chat"}, "label": "route_name"},
        "/metrics", routed("chat-route", 0, 0), routed("chat-route", 0, 3), False, math.nan, 3,
    ),
    "keda's queue": Scenario(
        {"kind": "keda_queue", "workloads": {"ml/chat": "chat"}},
        "/queue", queue("ml/chat", 0, 0.0), queue("ml/chat", 3, 0.05), True, math.nan, 3,
    ),
    "keda's old queue": Scenario(
        {"kind": "keda_queue", "workloads": CHAT_HOST},
        "/queue", queue("chat.example.org", 0), queue("chat.example.org", 3), False, math.nan, 3,
    ),
    "keda's queue with times": Scenario(
        {"kind": "keda_queue", "workloads": {"ml/chat": "chat"}},
        "/queue", '{"ml/chat":{"Requests":0,"Activity":"2024-01-01T00:00:00Z"}}',
        '{"ml/chat":{"Requests":3,"Activity":"2024-01-01T00:00:09Z"}}', False, math.nan, 3,
    ),
    "generic": Scenario(
        {"kind": "generic", "series": ANY, "label": "route", "workloads": {"/chat": "chat"}},
        "/metrics", plain(7, 0), plain(8, 2), True, 2, math.nan,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_first_request_is_seen(name: str) -> None:
    scenario = SCENARIOS[name]
    with page_server() as server:
        server.respond(scenario.path, scenario.before)
        collector = GatewayCollector((gateway(server.url, **scenario.settings),))
        key = Gateway(workload="chat", name="edge")
        try:
            until(lambda: len(server.requests) > 2)
            before = rows(collector)[key]
            assert not before.rate > 0
            assert not before.queued > 0
            assert not before.active > 0
            most = 0.0
            server.respond(scenario.path, scenario.after)

            def seen() -> bool:
                nonlocal most
                row = rows(collector)[key]
                most = max(most, row.rate if row.rate == row.rate else 0.0)
                used = all(
                    math.isnan(b) if math.isnan(a) else a == b for a, b in zip(scenario[-2:], row[1:], strict=True)
                )
                return used and (most > 0 or not scenario.arrives)

            until(seen)
            assert {request.path for request in server.requests} == {scenario.path}
        finally:
            collector.close()


def test_a_request_counts_although_the_page_cannot_be_read_after_it() -> None:
    with page_server() as server:
        server.respond("/stats/prometheus", envoy("chat_v1"))
        collector = GatewayCollector((gateway(server.url),))
        try:
            until(lambda: len(server.requests) > 2)
            assert not rows(collector)[Gateway(workload="chat", name="edge")].rate > 0
            server.respond("/stats/prometheus", envoy("chat_v1", refused=1))
            answered = len(server.requests)
            until(lambda: len(server.requests) > answered + 2)
            server.respond("/stats/prometheus", status=503)
            until(lambda: bool(collector.problems()["edge"]))
            row = rows(collector)[Gateway(workload="chat", name="edge")]
            assert row.rate > 0
            assert math.isnan(row.active)
            assert math.isnan(rows(collector)[Gateway(workload="chat", name="edge")].rate)
        finally:
            collector.close()


def test_a_request_counts_although_the_page_comes_late() -> None:
    late = 10 * QUICK["period_s"]
    with page_server() as server:
        server.respond("/stats/prometheus", envoy("chat_v1"))
        collector = GatewayCollector((gateway(server.url),))
        try:
            until(lambda: len(server.requests) > 2)

            def slow() -> str:
                server.respond("/stats/prometheus", envoy("chat_v1", refused=1))
                time.sleep(late)
                return envoy("chat_v1", refused=1)

            server.replies["/stats/prometheus"] = slow
            until(lambda: rows(collector)[Gateway(workload="chat", name="edge")].rate > 0)
        finally:
            collector.close()


def test_several_values_are_one_workload_and_what_is_not_named_is_nobodys() -> None:
    page = "".join(f'waiting{{route="{route}"}} {n}\n' for route, n in (("/a", 1), ("/b", 2), ("/c", 4), ("/d", 8)))
    with page_server() as server:
        server.respond("/metrics", page)
        settings = gateway(
            server.url, kind="generic", series=ANY, label="route", workloads={"/a": "chat", "/b": "chat", "/c": "embed"}
        )
        collector = GatewayCollector((settings,))
        try:
            until(lambda: rows(collector)[Gateway(workload="chat", name="edge")].queued == 3)
            assert rows(collector)[Gateway(workload="embed", name="edge")].queued == 4
            assert len(rows(collector)) == 2
        finally:
            collector.close()


def test_the_rate_of_a_queue_is_taken_as_it_is_and_what_is_no_queue_is_reported() -> None:
    with page_server() as server:
        server.respond("/queue", queue("ml/chat", 3, 0.25))
        collector = GatewayCollector((gateway(server.url, kind="keda_queue", workloads={"ml/chat": "chat"}),))
        key = Gateway(workload="chat", name="edge")
        try:
            until(lambda: rows(collector)[key][::2] == (0.25, 3.0))
            for page in ("error getting queue size", "[]", '{"ml/chat": "three"}', '{"ml/chat": {"Concurrency": "3"}}'):
                server.respond("/queue", page)
                until(lambda: "this is no queue of the add-on" in (collector.problems()["edge"] or ""))
                server.respond("/queue", queue("ml/chat", 3, 0.25))
                until(lambda: collector.problems()["edge"] == "")
        finally:
            collector.close()


def test_a_label_that_no_series_has_is_an_error_and_no_sum_of_all() -> None:
    both = {"a-route": "chat", "b-route": "embed"}
    page = routed("a-route", 5, 3) + routed("b-route", 7, 4)
    with page_server() as server:
        server.respond("/metrics", page)
        for workloads in (both, {"a-route": "chat"}):
            collector = GatewayCollector((gateway(server.url, kind="keda_http", workloads=workloads),))
            try:
                until(lambda: bool(collector.problems()["edge"]))  # noqa: B023 - it is waited for here
                reported = collector.problems()["edge"] or ""
                assert (
                    "no series has the label 'host' (labels there: code, method, route_name, route_namesp" in reported
                )
                assert all(math.isnan(value) for row in rows(collector).values() for value in row)
            finally:
                collector.close()


def test_series_without_the_label_are_of_none_of_several_workloads() -> None:
    page = plain(7, 5)
    with page_server() as server:
        server.respond("/metrics", page)
        one = {"name": "edge", "kind": "generic", "series": ANY, "label": "route"}
        collector = GatewayCollector((gateway(server.url, **one, workloads={"/chat": "chat", "/x": "embed"}),))
        try:
            until(lambda: "waiting without the label are of no workload" in (collector.problems()["edge"] or ""))
            assert all(math.isnan(row.queued) for row in rows(collector).values())
        finally:
            collector.close()


def test_a_query_and_a_token_go_with_the_question(tmp_path: Path) -> None:
    with page_server() as server:
        server.respond("/stats/prometheus", envoy("chat_v1"))
        (token := tmp_path / "token").write_text("s3cret\n")
        collector = GatewayCollector(
            (gateway(f"{server.url}/stats/prometheus?usedonly&filter=upstream", token_file=str(token)),)
        )
        until(lambda: len(server.requests) > 1)
        collector.close()
    assert server.requests[0].path == "/stats/prometheus?usedonly&filter=upstream"
    assert server.requests[0].headers["Authorization"] == "Bearer s3cret"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"kind": "generic"},
            r"targets\[0\]\.series: missing; name arrived, queued or active, or set server",
        ),
        ({"series": ANY}, r"targets\[0\]\.series: those of envoy are known; leave it out"),
        ({"kind": "generic", "series": ANY}, r"targets\[0\]\.label: missing; name the label"),
        ({"kind": "generic", "label": "x", "series": Series(queued=("a b",))}, r"series\.queued: 'a b' is no"),
    ],
)
def test_settings_that_cannot_work(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        GatewayCollector((gateway("http://127.0.0.1:1", **changes),))


def test_two_gateways_of_one_name() -> None:
    one = gateway("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"targets\[0\]\.replica: 'edge' is taken already"):
        GatewayCollector((one, one))


def test_the_doctor_reports_who_does_not_answer_and_what_is_not_reported() -> None:
    with page_server() as server, page_server() as other:
        server.respond("/stats/prometheus", envoy("another"))
        workloads = {"chat_v1": "chat"}
        targets = tuple(
            TargetSettings(replica=name, url=url, server="envoy", workloads=workloads)
            for name, url in (("edge", server.url), ("away", other.url))
        )
        settings = AgentConfig(node="n1", workloads=WorkloadsConfig(targets=targets), disabled=("host", "nvml"))

        def wait(seconds: float) -> None:
            del seconds
            until(lambda: len(server.requests) > 1 and len(other.requests) > 1)

        found = {one.name: one for one in explain(Config(agent=settings), wait=wait)}
    assert found["gateway"].detail == "2 workloads are behind gateways"
    assert found["gateway.edge"].detail == "nothing is reported for 'chat_v1' yet"
    assert found["gateway.away"].detail == f"{other.url}/stats/prometheus: status 404"


def test_from_a_page_to_a_decision(embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    """A gateway on loopback, the agent, the broker, the engine: the workload without a replica gets one."""
    broker = embedded_broker({TELEMETRY.name: 1, EVENTS.name: 1, INVENTORY.name: 1})
    engine = Engine(WorkerConfig(), dict.fromkeys(TOPICS, 1))
    gpus = tuple(Device(id=f"g{i}", model="h100", memory_bytes=80) for i in range(2))
    asleep = WorkloadSpec(workload="chat", cell="default", time_ns=1, kind="inference", max_replicas=2)
    known = [Inventory(node="gpus", cell="default", epoch=1, time_ns=1, devices=gpus), asleep]
    engine.feed([Incoming(m.topic, 0, 0, m.key, m.value, m.headers) for m in (record_message(r, "/t") for r in known)])
    consumer = Consumer(consumer_settings(broker.bootstrap, group="test", client_id="test"))
    consumer.subscribe([TELEMETRY.name, INVENTORY.name])
    ticks, decided = 0, list[Scale]()

    def take() -> None:
        nonlocal ticks
        for message in consumer.consume(100, 0.05):
            topic, key, value = message.topic(), message.key(), message.value()
            assert isinstance(topic, str)
            assert isinstance(key, bytes)
            ticks += topic == TELEMETRY.name
            headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
            sent = engine.feed([Incoming(topic, 0, message.offset() or 0, key, value, headers)])
            records = [decode_record(m.topic, m.value, m.headers) for m in sent if m.topic == DECISIONS.name]
            decided.extend(record for record in records if isinstance(record, Scale))

    stop = threading.Event()
    with page_server() as server:
        server.respond("/stats/prometheus", envoy("chat_v1"))
        agent = AgentConfig(node="edge", state_dir=str(tmp_path), period_s=0.1, spool_bytes=0)
        config = Config(kafka=KafkaConfig(bootstrap=broker.bootstrap), agent=agent)
        collectors = [GatewayCollector((gateway(server.url),))]
        runs = threading.Thread(target=run_agent, args=(config,), kwargs={"stop": stop, "collectors": collectors})
        runs.start()
        try:

            def warm() -> bool:
                take()
                return ticks > 30

            until(warm)
            assert decided == []
            server.respond("/stats/prometheus", envoy("chat_v1", refused=1))

            def woken() -> bool:
                take()
                return bool(decided)

            until(woken)
        finally:
            stop.set()
            runs.join()
            consumer.close()
    assert (decided[0].workload, decided[0].replicas_before, decided[0].replicas) == ("chat", 0, 1)
    assert "at the gateway" in decided[0].reason
