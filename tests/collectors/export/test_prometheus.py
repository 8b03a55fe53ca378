"""The Prometheus endpoint: what it says, in which format, to whom, and that nobody can hold it up."""

import gzip
import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from flyball_collectors.base import Reading
from flyball_collectors.export import Exports, Framed
from flyball_collectors.export.latest import Latest
from flyball_collectors.export.names import label, metric_family_of
from flyball_collectors.export.rows import column_attributes
from flyball_contracts.config import AgentConfig, Config, ExportConfig, parse_config
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import GPU, GPU_DETAIL, HOST, LAYOUTS, NUMA, USAGE, Layout
from flyball_contracts.records import Allocation, Device, Gateway, Inventory, NumaNode
from flyball_contracts.records.events import node_event

S = 1_000_000_000
START_NS = 1_700_000_000 * S
NASTY = 'a "quoted" \\ name\nof two lines'
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def inventory(**more: Any) -> Inventory:
    devices = tuple(
        Device(id=f"GPU-{i}", model="H100", memory_bytes=80 << 30, index=i, pci_address=f"0000:1{i}:00.0")
        for i in range(2)
    )
    numa = (NumaNode(id=0, cpu_count=1, memory_bytes=1), NumaNode(id=1, cpu_count=1, memory_bytes=1))
    plain = Inventory(node="n1", cell="c", epoch=1, time_ns=1, devices=devices, numa=numa, driver_version="580.1")
    return msgspec.structs.replace(plain, **more)


def framed(
    layout: Layout, values: Mapping[str, float | Sequence[float]] | None = None, *, period_s: int = 1, rows: int = 2
) -> Framed:
    block = np.full((rows, len(layout)), np.nan, np.float32)
    for key, value in (values or {}).items():
        block[:, layout.column(key)] = value
    return Framed(Reading(layout.schema, block), period_s * S)


class Scene:
    """Exports on a free port, fed by hand."""

    def __init__(self, **settings: Any) -> None:
        self.now_s = 0.0
        config = AgentConfig(export=ExportConfig(metrics_listen="127.0.0.1:0", **settings))
        self.exports = Exports(config, monotonic=lambda: self.now_s)
        self.ticks = 0

    def tick(self, *frames: Framed, of: Inventory | None = None, events: Any = ()) -> None:
        self.ticks += 1
        passed_ns = self.ticks * S
        self.exports.take(START_NS + passed_ns, passed_ns, frames, of or inventory(), events)

    def get(self, path: str = "/metrics", **headers: str) -> http.client.HTTPResponse:
        request = urllib.request.Request(f"http://127.0.0.1:{self.exports.port}{path}", headers=headers)
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=10)
        return answer

    def samples(self) -> Samples:
        return samples(self.get().read().decode())


def samples(text: str, parse: Any = parse_text) -> Samples:
    found: Samples = {}
    for metric_family in parse(text):
        for sample in metric_family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


def of(found: Samples, name: str, **labels: str) -> list[float]:
    return [value for (n, held), value in sorted(found.items(), key=repr) if n == name and held >= set(labels.items())]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene(dcgm=True)
    yield made
    made.exports.close()


def test_gauges_and_counters_by_their_prometheus_names(scene: Scene) -> None:
    scene.tick(framed(GPU, {"hw.power": [300, 200], "hw.gpu.utilization{task=general}": 0.5}))
    scene.tick(framed(GPU, {"hw.power": [310, 200], "hw.energy": [300, 200], "hw.gpu.io{direction=receive}": 5}))
    scene.tick(framed(GPU, {"hw.power": [320, float("nan")], "hw.energy": [310, float("nan")]}))
    found = scene.samples()
    assert of(found, "hw_power_watts", hw_id="GPU-0", hw_type="gpu") == [320]
    assert of(found, "hw_power_watts", hw_id="GPU-1") == []  # missing is missing
    assert of(found, "hw_energy_joules_total", hw_id="GPU-0", node="n1", model="H100", pci_address="0000:10:00.0") == [
        610
    ]
    assert of(found, "hw_energy_joules_total", hw_id="GPU-1") == []
    scene.tick(framed(GPU, {"hw.energy": [1, 100]}))
    assert of(scene.samples(), "hw_energy_joules_total", hw_id="GPU-1") == [300]  # what it was goes on


@example(float(np.float32(82.2)))
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_values_are_reported_as_short_as_they_are_known(value: float) -> None:
    latest = Latest()
    latest.take(START_NS, S, [framed(GPU, {"hw.power": value})], inventory())
    assert latest.view is not None
    reported = float(latest.view.blocks[0].values[0, GPU.column("hw.power")])
    assert reported == pytest.approx(value, rel=1e-6)
    if 1e-3 < abs(value) < 1e6:
        assert len(f"{abs(reported)!r}".replace(".", "").lstrip("0")) <= 8


def test_all_layouts_together_are_one_valid_exposition(scene: Scene) -> None:
    allocations = (
        Allocation(
            workload=NASTY,
            replica="r-0",
            devices=(0,),
            runtime="kubernetes",
            labels={"namespace": "ml", "pod": "p-0", "container": "main"},
        ),
        Allocation(workload="w", replica="r-1", devices=()),
    )
    gateways = (Gateway(workload="w", name="edge"),)
    held = inventory(allocations=allocations, gateways=gateways)
    rows = {"device": 2, "host": 1, "allocation": 2, "numa": 2, "gateway": 1}
    for _ in range(2):
        frames = [framed(x, dict.fromkeys(x.columns, 2.0), rows=rows[x.rows]) for x in LAYOUTS.values()]
        scene.tick(*frames, of=held)
    text = scene.get().read().decode()
    found = samples(text)
    known = sum(len(layout) * rows[layout.rows] for layout in LAYOUTS.values())
    ours = {key: value for key, value in found.items() if not key[0].startswith("DCGM_")}
    assert len(ours) == known
    assert {value for (name, _), value in ours.items() if name.endswith("_total")} == {4.0}
    assert of(found, "container_cpu_time_seconds_total", workload=NASTY, replica="r-0", pod="p-0", namespace="ml") == [
        4
    ]
    assert of(found, "hw_power_watts", hw_id="GPU-0", pod="p-0", container="main") == [2]
    assert of(found, "system_memory_limit_bytes", numa_node="1") == [2]
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))

    other = scene.get(Accept="application/openmetrics-text; version=1.0.0").read().decode()
    assert samples(other, cast("Any", openmetrics).text_string_to_metric_families) == found
    assert "# UNIT hw_power_watts watts" in other


def test_each_metric_family_has_one_type_and_no_two_columns_of_a_row_are_one_series() -> None:
    types: dict[str, str] = {}
    for layout in LAYOUTS.values():
        for metric in layout.metrics:
            metric_family = metric_family_of(metric)
            assert types.setdefault(metric_family.name, metric_family.type) == metric_family.type, metric_family.name
    for rows in ("device", "host", "allocation", "numa"):
        series = [
            (
                metric_family_of(metric).name,
                frozenset((label(k), v) for k, v in column_attributes(layout, metric).items()),
            )
            for layout in LAYOUTS.values()
            if layout.rows == rows
            for metric in layout.metrics
        ]
        assert len(series) == len(set(series))


def test_work_on_a_shared_gpu_is_nobodys_by_name(scene: Scene) -> None:
    shared = tuple(Allocation(workload="w", replica=f"r-{i}", devices=(1,)) for i in range(2))
    scene.tick(framed(GPU, {"hw.power": 1.0}), of=inventory(allocations=shared))
    assert of(scene.samples(), "hw_power_watts", hw_id="GPU-1") == [1]
    assert of(scene.samples(), "hw_power_watts", hw_id="GPU-1", workload="w") == []


def test_counters_follow_their_device_when_the_rows_change(scene: Scene) -> None:
    both, first, second = inventory(), *(inventory(devices=(device,)) for device in inventory().devices)
    scene.tick(framed(GPU, {"hw.energy": [10, 100]}), of=both)
    scene.tick(framed(GPU, {"hw.energy": 1}, rows=1), of=second)
    assert of(scene.samples(), "hw_energy_joules_total") == [101]
    scene.tick(framed(GPU, {"hw.energy": 2}, rows=1), of=first)
    assert of(scene.samples(), "hw_energy_joules_total", hw_id="GPU-0") == [2]  # it was gone, and counts again


def test_a_slow_layout_stays_and_a_silent_one_goes(scene: Scene) -> None:
    scene.tick(framed(GPU, {"hw.power": 1.0}), framed(NUMA, {"system.memory.limit": 1.0}))
    for _ in range(29):
        scene.tick(framed(GPU, {"hw.power": 1.0}))
    assert of(scene.samples(), "system_memory_limit_bytes")
    for _ in range(2):
        scene.tick(framed(GPU, {"hw.power": 1.0}))
    assert not of(scene.samples(), "system_memory_limit_bytes")
    assert of(scene.samples(), "hw_power_watts")


def test_dashboards_made_for_dcgm_find_their_names(scene: Scene) -> None:
    pod = Allocation(
        workload="w", replica="r", devices=(1,), runtime="kubernetes", labels={"namespace": "ml", "pod": "p"}
    )
    gpu: dict[str, float | list[float]] = {
        "hw.energy": [3, 4],
        "hw.power": 300,
        "hw.gpu.utilization{task=general}": 0.25,
        "hw.gpu.memory.usage": 20 << 30,
        "hw.gpu.memory.limit": 80 << 30,
        "nvidia.gpu.memory.reserved": 1 << 30,
        "nvidia.gpu.clock.frequency{clock=sm}": 1.98e9,
        "hw.gpu.io{direction=transmit}": 1000,
    }
    xid = node_event("n1", START_NS, "xid", device="GPU-1", code=79)
    scene.tick(framed(GPU, gpu, period_s=2), of=inventory(allocations=(pod,)), events=[xid])
    found = scene.samples()
    labels = {
        "gpu": "1",
        "UUID": "GPU-1",
        "pci_bus_id": "00000000:11:00.0",
        "device": "nvidia1",
        "modelName": "H100",
        "Hostname": "n1",
        "namespace": "ml",
        "pod": "p",
        "container": "",
    }
    reported = {name: value for (name, held), value in found.items() if held == frozenset(labels.items())}
    assert reported == {
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 4000,
        "DCGM_FI_DEV_POWER_USAGE": 300,
        "DCGM_FI_DEV_GPU_UTIL": 25,
        "DCGM_FI_DEV_FB_USED": 20480,
        "DCGM_FI_DEV_FB_TOTAL": 81920,
        "DCGM_FI_DEV_FB_RESERVED": 1024,
        "DCGM_FI_DEV_FB_FREE": 60416,
        "DCGM_FI_DEV_SM_CLOCK": pytest.approx(1980),
        "DCGM_FI_PROF_PCIE_TX_BYTES": 500,
        "DCGM_FI_DEV_XID_ERRORS": 79,
    }
    assert of(found, "DCGM_FI_DEV_XID_ERRORS", gpu="0") == [0]


def test_dcgm_names_only_where_they_are_wanted() -> None:
    scene = Scene()
    scene.tick(framed(GPU, {"hw.power": 1.0}), framed(GPU_DETAIL), framed(HOST, rows=1), framed(USAGE, rows=0))
    assert not [name for name, _ in scene.samples() if name.startswith("DCGM_")]
    scene.exports.close()


def test_compressed_for_those_who_take_it(scene: Scene) -> None:
    scene.tick(framed(GPU, {"hw.power": 1.0}))
    answer = scene.get(**{"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(answer.read()) == scene.get().read()


def test_health_follows_the_ticks(scene: Scene) -> None:
    def health() -> tuple[int, str]:
        try:
            answer = scene.get("/health")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode().strip()
        return answer.status, answer.read().decode().strip()

    assert health() == (503, "no tick yet")
    scene.tick()
    assert health() == (200, "ok")
    scene.now_s = 3.9
    assert health() == (200, "ok")
    scene.now_s = 4.1
    assert health() == (503, "no tick for 4.1 s")
    scene.tick()
    assert health() == (200, "ok")
    with pytest.raises(urllib.error.HTTPError, match="404"), scene.get("/other"):
        pass


def test_idle_clients_cost_neither_the_ticks_nor_the_others(scene: Scene) -> None:
    values = dict.fromkeys(GPU.columns, 1.0)
    idle = [socket.create_connection(("127.0.0.1", scene.exports.port or 0)) for _ in range(12)]
    scene.tick(framed(GPU, values))
    assert scene.samples()
    greedy = [socket.create_connection(("127.0.0.1", scene.exports.port or 0)) for _ in range(40)]
    for _ in range(50):
        scene.tick(framed(GPU, values))
    assert threading.active_count() < 30  # however many knock
    for connection in [*idle, *greedy]:
        connection.close()
    deadline = time.monotonic() + 10
    while True:
        try:
            assert scene.samples()
            break
        except OSError:
            assert time.monotonic() < deadline


def test_clients_that_get_no_thread_hold_no_place(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.tick(framed(GPU, dict.fromkeys(GPU.columns, 1.0)))
    refused = 0

    def no_thread(thread: threading.Thread) -> None:
        nonlocal refused
        refused += 1
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", no_thread)
        for _ in range(20):
            with pytest.raises((urllib.error.URLError, ConnectionError, http.client.HTTPException)):
                scene.get()
    assert refused == 20, "each client had a place"
    assert scene.samples()


def test_an_address_that_cannot_be_is_refused(scene: Scene) -> None:
    for listen in (f"127.0.0.1:{scene.exports.port}", "192.0.2.1:9400", "127.0.0.1:70000"):
        with pytest.raises(ConfigError, match="metrics_listen"):
            Exports(AgentConfig(export=ExportConfig(metrics_listen=listen)))
    with pytest.raises(ConfigError, match="metrics_listen"):
        parse_config("agent: {export: {metrics_listen: '9400'}}", Config)
    assert parse_config("agent: {export: {metrics_listen: '[::1]:0'}}", Config).agent.export.metrics_listen == "[::1]:0"


def test_a_change_of_address_moves_and_a_bad_one_changes_nothing(scene: Scene) -> None:
    scene.tick(framed(GPU, {"hw.power": 1.0}))
    port = scene.exports.port
    with pytest.raises(ConfigError):
        scene.exports.reconfigure(AgentConfig(export=ExportConfig(metrics_listen="192.0.2.1:9400")))
    assert scene.exports.port == port
    assert of(scene.samples(), "DCGM_FI_DEV_POWER_USAGE")
    scene.exports.reconfigure(AgentConfig(export=ExportConfig(metrics_listen="127.0.0.1:0")))
    assert not of(scene.samples(), "DCGM_FI_DEV_POWER_USAGE")
    assert scene.exports.port == port
    scene.exports.reconfigure(AgentConfig())
    assert scene.exports.port is None


def test_a_fault_of_the_outputs_is_reported_once_and_costs_nothing_else(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.tick(framed(GPU, {"hw.power": 1.0}))
    broken = Framed(Reading(4711, np.zeros((1, 1), np.float32)), S)
    for _ in range(3):
        scene.tick(broken)
    assert len(caplog.records) == 1
    scene.tick(framed(GPU, {"hw.power": 2.0}))
    assert of(scene.samples(), "hw_power_watts", hw_id="GPU-0") == [2]
