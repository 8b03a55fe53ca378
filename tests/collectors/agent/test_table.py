"""What `flyball agent --once` prints: only what is there, and no wider than the terminal."""

import io
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from flyball_collectors.agent.diagnosis.quantity import number, quantity
from flyball_collectors.agent.diagnosis.table import render
from flyball_collectors.base import Reading
from flyball_contracts.metrics import (
    GATEWAY,
    GPU,
    GPU_DETAIL,
    GPU_SHARE,
    HOST,
    LAYOUTS,
    NUMA,
    SERVING,
    USAGE,
    WORKLOAD,
    Layout,
    Metric,
)
from flyball_contracts.records import Allocation, Device, Gateway, Inventory, NumaNode


def inventory(gpus: int = 2) -> Inventory:
    return Inventory(
        node="n1",
        cell="c",
        epoch=1,
        time_ns=1,
        devices=tuple(Device(id=f"GPU-{i}", model="H100", memory_bytes=1, index=i) for i in range(gpus)),
        allocations=tuple(Allocation(workload="chat", replica=f"chat-{i}") for i in range(3)),
        numa=(NumaNode(id=0, cpu_count=4, memory_bytes=1), NumaNode(id=1, cpu_count=4, memory_bytes=1)),
        gateways=(Gateway(workload="chat", name="edge"),),
        cpu_count=8,
    )


def reading(layout: Layout, of: Inventory, values: Mapping[str, float | list[float]]) -> Reading:
    reported = {"device": of.devices, "allocation": of.allocations, "numa": of.numa, "gateway": of.gateways}
    rows = 1 if layout.rows == "host" else len(reported[layout.rows])
    block = np.full((rows, len(layout)), np.nan, np.float32)
    for key, value in values.items():
        block[:, layout.column(key)] = value
    return Reading(layout.schema, block)


def text_of(readings: list[Reading], of: Inventory, width: int = 160) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(render(readings, of, width))
    return out.getvalue()


def line(text: str, start: str) -> list[str]:
    (found,) = [line for line in text.splitlines() if line.startswith(start)]
    return found.removeprefix(start).split()


def test_only_what_has_a_value_stands_there() -> None:
    of = inventory()
    text = text_of([reading(GPU, of, {"hw.power": [100, 1234]}), reading(HOST, of, {"system.uptime": 7200})], of)
    assert line(text, "hw.power") == ["100", "W", "1.23", "kW"]
    assert line(text, "system.uptime") == ["2", "h"]
    assert "hw.energy" not in text
    assert "Replicas" not in text
    assert text.startswith("n1  8 CPUs · 2 H100\n")


def test_zeros_that_are_no_news_share_a_line_and_others_stand() -> None:
    of = inventory()
    gpu: dict[str, float | list[float]] = {
        "hw.gpu.utilization{task=general}": 0,
        "hw.errors{type=corrected}": 0,
        "hw.errors{type=uncorrected}": [0, 2],
        "nvidia.gpu.pcie.replays": 0,
        "nvidia.gpu.memory.row_remap.pending": 0,
        "nvidia.gpu.throttle.time{reason=power}": 0,
    }
    text = text_of([reading(GPU, of, gpu)], of)
    assert line(text, "hw.gpu.utilization") == ["general", "0", "%", "0", "%"]
    assert line(text, "hw.errors") == ["uncorrected", "+0", "+2"]
    assert (
        "zero: nvidia.gpu.throttle.time (power), nvidia.gpu.pcie.replays, hw.errors (corrected), "
        "nvidia.gpu.memory.row_remap.pending" in text
    )


def test_many_gpus_are_reported_by_their_range() -> None:
    of = inventory(72)
    text = text_of([reading(GPU, of, {"hw.power": [float(i) for i in range(72)]})], of, 80)
    assert line(text, "hw.power") == ["0", "W", "71", "W"]
    assert "lowest" in text
    assert len([each for each in text.splitlines() if each.split()[:1] and each.split()[0].isdecimal()]) == 72


def test_replicas_have_one_line_with_what_they_use_and_report() -> None:
    of = inventory()
    usage = reading(USAGE, of, {"container.memory.working_set": float(6 << 30), "nvidia.gpu.workload.energy": 400})
    reported = reading(WORKLOAD, of, {"flyball.workload.request.rate": [12.5, 13, float("nan")]})
    text = text_of([usage, reported], of)
    assert line(text, "chat/chat-0") == ["6", "GiB", "+400", "J", "12.5", "/s"]
    assert line(text, "chat/chat-2") == ["6", "GiB", "+400", "J"]
    assert line(text, "container.memory.working_set") == ["6", "GiB"] * 3


def test_replicas_of_one_name_are_distinguished() -> None:
    both = tuple(Allocation(workload=workload, replica="n1") for workload in ("chat", "ml/ft"))
    of = msgspec.structs.replace(inventory(), allocations=both)
    text = text_of([reading(WORKLOAD, of, {"flyball.workload.ready": [1, 0]})], of)
    assert "chat/n1  ml/ft/n1" in text


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("gpus", [0, 1, 8, 72])
def test_all_layouts_fit_the_terminal(width: int, gpus: int) -> None:
    of = inventory(gpus)
    readings = [reading(layout, of, dict.fromkeys(layout.columns, 123456.0)) for layout in LAYOUTS.values()]
    text = text_of(readings, of, width)
    assert max(len(row) for row in text.splitlines()) <= width
    assert "…" not in text
    for title in ("Host", "NUMA nodes", "What the replicas use", "What the replicas say", "How the replicas answer"):
        assert f"{title}, all values" in text
    for title in ("GPUs", "GPUs in detail", "How the GPUs are shared"):
        assert (f"{title}, all values" in text) == (gpus > 0)
    reported = (GATEWAY, GPU, GPU_DETAIL, GPU_SHARE, HOST, NUMA, SERVING, USAGE, WORKLOAD)
    assert len({layout.schema for layout in reported}) == len(LAYOUTS)


def test_an_empty_node_is_no_error() -> None:
    assert text_of([], Inventory(node="n1", cell="c", epoch=1, time_ns=1)).startswith("n1")


SCENARIOS = [
    (float("nan"), "W", "gauge", ""), (float("inf"), "W", "gauge", ""),
    (0.0, "W", "gauge", "0 W"), (0.005, "W", "gauge", "5 mW"),
    (1.98e9, "Hz", "gauge", "1.98 GHz"), (90_000.0, "s", "gauge", "1.04 d"), (0.002, "s", "counter", "+2 ms"),
    (0.0, "By", "gauge", "0 B"), (float(80 * 2**30), "By", "gauge", "80 GiB"), (45.0, "Cel", "gauge", "45 °C"),
    (0.5, "1", "gauge", "0.5"), (3.0, "{error}", "counter", "+3"), (12.5, "{request}/s", "gauge", "12.5 /s"),
    (90.0, "s", "gauge", "90 s"), (150.0, "s", "gauge", "2.5 min"), (1e12, "{cycle}", "counter", "+1000000000000"),
    (-0.25, "Cel", "gauge", "-0.25 °C"), (-1e-4, "s", "gauge", "-100 µs"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "unit", "instrument", "text"), SCENARIOS)
def test_quantities(value: float, unit: str, instrument: str, text: str) -> None:
    metric = Metric("m", unit, "counter" if instrument == "counter" else "gauge", "")
    assert quantity(value, metric) == text


def test_shares_are_in_percent() -> None:
    assert quantity(0.613, GPU.metrics[GPU.column("nvidia.gpu.sm.activity")]) == "61.3 %"
    assert quantity(2.0, GPU.metrics[GPU.column("nvidia.gpu.pstate")]) == "2"


@given(st.floats(min_value=-1e30, max_value=1e30))
def test_numbers_are_near_and_have_no_exponent(value: float) -> None:
    text = number(value)
    assert "e" not in text
    if text != "~0":
        assert float(text) == pytest.approx(value, rel=0.01, abs=1e-4)
