"""OTLP: what a collector decodes, and what happens while it is away or refuses."""

import gzip
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint
from tests.collectors.export.test_prometheus import START_NS, S, framed, inventory

from flyball_collectors.export import Exports, Framed
from flyball_collectors.export.latest import Latest
from flyball_collectors.export.sender import OtlpSender
from flyball_collectors.parameters import AgentParameters, ExportParameters
from flyball_contracts.config import Config, parse_config
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import GPU, HOST, LAYOUTS, USAGE
from flyball_contracts.records import Allocation, Inventory

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


class Response(NamedTuple):
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012
    body: bytes = b""


class Endpoint:
    """Takes requests, and gives the answers of a queue, the last one for ever."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: deque[Response] = deque([Response()])
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []

    def take(self, headers: dict[str, str], body: bytes) -> Response:
        self.headers.append(headers)
        self.requests.append(ExportMetricsServiceRequest.FromString(gzip.decompress(body)))
        return self.answers.popleft() if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving() -> Generator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            reported = served.take(dict(self.headers), self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(reported.status)
            for name, value in {**reported.headers, "Content-Length": str(len(reported.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reported.body)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = Endpoint(f"http://127.0.0.1:{server.server_address[1]}/v1/metrics")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as made:
        yield made


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def view_of(*frames: Framed, of: Inventory | None = None, ticks: int = 1) -> Any:
    latest = Latest()
    for tick in range(1, ticks + 1):
        latest.take(START_NS + tick * S, tick * S, frames, of or inventory())
    assert latest.view is not None
    return latest.view


def sender(endpoint: Endpoint, **settings: Any) -> OtlpSender:
    config = ExportParameters(otlp_endpoint=endpoint.url, otlp_headers_env="OTLP_HEADERS", **settings)
    environment = {"OTLP_HEADERS": "Authorization=Bearer%20abc, X-Tenant=gpu", "FLYBALL_NODE": "k-1"}
    return OtlpSender(config, "machine-1", environment, random=lambda: 0.0)


def metrics_of(request: ExportMetricsServiceRequest) -> dict[str, Metric]:
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "flyball.agent"
    found = {metric.name: metric for metric in scope.metrics}
    assert len(found) == len(scope.metrics)
    return found


def attributes_of(point: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in point.attributes}


def test_a_collector_decodes_names_units_types_and_who_it_is_of(endpoint: Endpoint) -> None:
    pod = Allocation(
        workload="w", replica="r", devices=(1,), runtime="kubernetes", labels={"namespace": "ml", "pod": "p"}
    )
    node = inventory(
        allocations=(pod,), provider="aws", region="us-east-1", availability_zone="us-east-1a", instance_type="p5"
    )
    gpu: dict[str, float | list[float]] = {
        "hw.power": [300, float("nan")],
        "hw.energy": [300, 200],
        "hw.gpu.memory.usage": 1024,
        "hw.gpu.io{direction=receive}": 7,
    }
    sending = sender(endpoint)
    sending.put(view_of(framed(GPU, gpu), framed(HOST, {"system.cpu.time{mode=user}": 2}, rows=1), of=node, ticks=3))
    until(lambda: sending.taken == 1)
    sending.close()
    (request,) = endpoint.requests
    assert attributes_of(request.resource_metrics[0].resource) == {
        "service.name": "flyball-agent",
        "host.name": "n1",
        "host.id": "machine-1",
        "host.type": "p5",
        "cloud.provider": "aws",
        "cloud.region": "us-east-1",
        "cloud.availability_zone": "us-east-1a",
        "k8s.node.name": "k-1",
        "flyball.cell": "c",
    }
    found = metrics_of(request)
    assert set(found) == {"hw.power", "hw.energy", "hw.gpu.memory.usage", "hw.gpu.io", "system.cpu.time"}
    (power,) = found["hw.power"].gauge.data_points  # what is missing has no point
    assert (found["hw.power"].unit, power.as_double, power.time_unix_nano) == ("W", 300, START_NS + 3 * S)
    energy = found["hw.energy"]
    assert (energy.unit, energy.sum.is_monotonic, energy.sum.aggregation_temporality) == ("J", True, CUMULATIVE)
    first, second = energy.sum.data_points
    assert (first.as_double, second.as_double) == (900, 600)
    assert (first.start_time_unix_nano, first.time_unix_nano) == (START_NS + S, START_NS + 3 * S)
    assert attributes_of(second) == {
        "hw.id": "GPU-1",
        "hw.model": "H100",
        "hw.type": "gpu",
        "hw.driver_version": "580.1",
        "nvidia.gpu.pci.address": "0000:11:00.0",
        "flyball.workload": "w",
        "flyball.replica": "r",
        "k8s.namespace.name": "ml",
        "k8s.pod.name": "p",
    }
    level = found["hw.gpu.memory.usage"].sum
    assert (level.is_monotonic, level.aggregation_temporality) == (False, CUMULATIVE)
    assert attributes_of(found["hw.gpu.io"].sum.data_points[0])["network.io.direction"] == "receive"
    assert attributes_of(found["system.cpu.time"].sum.data_points[0]) == {"cpu.mode": "user"}
    (headers,) = endpoint.headers
    assert (headers["Content-Type"], headers["Content-Encoding"]) == ("application/x-protobuf", "gzip")
    assert (headers["Authorization"], headers["X-Tenant"]) == ("Bearer abc", "gpu")


def test_all_layouts_go_and_no_point_stands_twice(endpoint: Endpoint) -> None:
    node = inventory(allocations=(Allocation(workload="w", replica="r"),))
    rows = {"device": 2, "host": 1, "allocation": 1, "numa": 2, "gateway": 0}
    frames = [framed(x, dict.fromkeys(x.columns, 1.0), rows=rows[x.rows]) for x in LAYOUTS.values()]
    sending = sender(endpoint)
    sending.put(view_of(*frames, of=node))
    until(lambda: sending.taken == 1)
    sending.close()
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for name, metric in metrics_of(endpoint.requests[0]).items():
        points: list[NumberDataPoint] = [*metric.sum.data_points, *metric.gauge.data_points]
        for point in points:
            key = name, frozenset(attributes_of(point).items())
            assert key not in seen
            seen.add(key)
    assert len(seen) == sum(len(layout) * rows[layout.rows] for layout in LAYOUTS.values())


def test_no_point_starts_after_its_time_though_the_clock_is_set_back() -> None:
    latest, frame = Latest(), framed(GPU, {"hw.energy": 1})
    for passed, time_ns in enumerate((START_NS + 3600 * S, START_NS), 1):
        latest.take(time_ns, passed * S, [frame], inventory())
    assert latest.view is not None
    (block,) = latest.view.blocks
    assert block.time_ns == START_NS
    assert (block.starts_ns <= START_NS).all()


def test_what_is_refused_for_now_is_sent_again(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    endpoint.answers = deque([Response(429, {"Retry-After": "0"}), Response(503, {"Retry-After": "0"}), Response()])
    sending = sender(endpoint)
    first, second = view_of(framed(GPU, {"hw.power": 1})), view_of(framed(GPU, {"hw.power": 2}))
    sending.put(first)
    sending.put(second)
    until(lambda: sending.taken == 2)
    sending.close()
    powers = [metrics_of(request)["hw.power"].gauge.data_points[0].as_double for request in endpoint.requests]
    assert powers == [1, 1, 1, 2]
    assert sending.lost == 0
    ill, well = (record.getMessage() for record in caplog.records)
    assert "status 429" in ill
    assert "takes requests again" in well


def test_what_is_refused_for_good_is_dropped_and_counted(endpoint: Endpoint) -> None:
    endpoint.answers = deque([Response(400), Response()])
    sending = sender(endpoint)
    for _ in range(2):
        sending.put(view_of(framed(GPU, {"hw.power": 1})))
    until(lambda: sending.taken == 1)
    sending.close()
    assert (sending.taken, sending.lost, len(endpoint.requests)) == (1, 1, 2)


def test_the_queue_is_bounded_and_every_drop_is_counted() -> None:
    nowhere = ExportParameters(otlp_endpoint="http://127.0.0.1:1/v1/metrics", otlp_queue=3)
    sending = OtlpSender(nowhere, "", {}, random=lambda: 1.0)
    for _ in range(10):
        sending.put(view_of(framed(GPU, {"hw.power": 1})))
    sending.close()
    assert (sending.taken, sending.lost) == (0, 10)


def test_what_waits_is_sent_when_the_endpoint_is_back(endpoint: Endpoint) -> None:
    endpoint.answers = deque([Response(503, {"Retry-After": "600"}), Response()])
    sending = sender(endpoint, otlp_queue=2)
    for power in range(3):
        sending.put(view_of(framed(GPU, {"hw.power": power})))
        until(lambda: endpoint.requests)
    sending.close()  # does not wait the ten minutes, and tries once more
    powers = [metrics_of(request)["hw.power"].gauge.data_points[0].as_double for request in endpoint.requests]
    assert powers == [0, 1, 2]
    assert (sending.taken, sending.lost) == (2, 1)


def test_points_refused_by_the_collector_are_reported(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    partial = ExportMetricsPartialSuccess(rejected_data_points=3, error_message="too many")
    body = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
    endpoint.answers = deque([Response(body=body), Response(body=b"not a message")])
    sending = sender(endpoint)
    for _ in range(2):
        sending.put(view_of(framed(GPU, {"hw.power": 1})))
    until(lambda: sending.taken == 2)
    sending.close()
    (record,) = caplog.records
    assert "3 data points: too many" in record.getMessage()


def test_the_agent_sends_every_period_and_counts(endpoint: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("abc\n")
    export = ExportParameters(otlp_endpoint=endpoint.url, otlp_period_s=10)
    exports = Exports(AgentParameters(root=str(tmp_path), export=export), environment={})
    for tick in range(1, 32):
        exports.take(START_NS + tick * S, tick * S, [framed(GPU, {"hw.energy": 1})], inventory())
    until(lambda: exports.requests == (4, 0))
    exports.close()
    assert exports.requests == (4, 0)
    energies = [metrics_of(request)["hw.energy"].sum.data_points[0].as_double for request in endpoint.requests]
    assert energies == [1, 11, 21, 31]
    assert attributes_of(endpoint.requests[0].resource_metrics[0].resource)["host.id"] == "abc"


@pytest.mark.parametrize("bad", ["collector:4318", "ftp://x/", "http://user:secret@x/", "http://x/?a=b"])
def test_an_endpoint_that_is_none_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="otlp_endpoint"):
        parse_config(f"agent: {{export: {{otlp_endpoint: '{bad}'}}}}", Config)


def test_rows_without_work_have_no_points(endpoint: Endpoint) -> None:
    sending = sender(endpoint)
    sending.put(view_of(framed(USAGE, rows=0)))
    until(lambda: sending.taken == 1)
    sending.close()
    assert metrics_of(endpoint.requests[0]) == {}
