"""What the node can and cannot measure, and the tables that show what it does."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.nvml_stub.stub import GPU_IS_LOST, NOT_SUPPORTED, NvmlStub

from flyball_collectors.agent import Finding, explain, render
from flyball_collectors.agent.table import quantity
from flyball_collectors.base import Reading
from flyball_contracts.config import AgentConfig, Config
from flyball_contracts.metrics import GPU, HOST, Metric
from flyball_contracts.records import Device, Inventory


def findings(root: Path | str = "/", *, host: bool = True, nvml: bool = True) -> dict[str, Finding]:
    config = Config(agent=AgentConfig(root=str(root), host=host, nvml=nvml))
    found = explain(config, wait=lambda seconds: None)
    assert len({finding.name for finding in found}) == len(found)
    assert all(finding.remedy for finding in found if not finding.ok)
    return {finding.name: finding for finding in found}


def test_this_machine_has_the_basics() -> None:
    found = findings(nvml=False)
    assert found["host.cpu"].ok
    assert found["host.memory"].ok
    assert found["nvml"] == Finding("nvml", False, "switched off", "set agent.nvml to true")


def test_a_kernel_without_pressure_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    found = findings(tmp_path, nvml=False)
    assert not found["host.psi"].ok
    assert "psi=1" in found["host.psi"].remedy
    assert not found["host.cpu"].ok


def test_a_root_without_proc_is_the_only_finding(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path).values()
    assert (finding.name, finding.ok) == ("agent.root", False)


def test_gpus_that_lack_the_same_are_told_of_together(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(4)
    nvml_stub.set_result("fan", NOT_SUPPORTED, gpu=2)
    nvml_stub.gpu(3).lost = 0
    found = findings(host=False)
    assert found["nvml"].detail == "4 GPUs, driver 580.1-stub"
    assert "hw.fan.speed_ratio" not in found["nvml.gpu.0-1"].detail
    assert "hw.fan.speed_ratio" in found["nvml.gpu.2"].detail
    assert "nvidia.gpu.sm.activity" in found["nvml.gpu.0-1"].detail
    assert found["nvml.events"].ok


def test_gpus_that_do_not_answer_are_told(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.gpu(1).lost = GPU_IS_LOST
    found = findings(host=False)
    assert not found["nvml.gpu"].ok
    assert "GPU 1" in found["nvml.gpu"].detail


def test_the_table_has_a_line_for_each_known_metric_and_a_column_for_each_gpu() -> None:
    values = np.full((6, len(GPU)), np.nan, np.float32)
    values[:, GPU.column("hw.power")] = [100, 200, 300, 400, 500, 1234]
    devices = tuple(Device(id=f"GPU-{i}", model="H100", memory_bytes=1, index=i) for i in range(6))
    inventory = Inventory(node="n1", cell="c", epoch=1, time_ns=1, devices=devices)
    host = np.full((1, len(HOST)), np.nan, np.float32)
    out = io.StringIO()
    console = Console(file=out, width=160, color_system=None)
    console.print(render([Reading(GPU.schema, values), Reading(HOST.schema, host)], inventory))
    text = out.getvalue()
    assert text.count("hw.power") == 2  # six GPUs, four to a table
    assert "1.234 kW" in text
    assert "5: H100" in text
    assert "hw.energy" not in text


CASES = [
    (float("nan"), "W", "gauge", ""), (0.0, "W", "gauge", "0 W"), (0.005, "W", "gauge", "5 mW"),
    (1.98e9, "Hz", "gauge", "1.98 GHz"), (90_000.0, "s", "gauge", "9e+04 s"), (0.002, "s", "counter", "+2 ms"),
    (0.0, "By", "gauge", "0 B"), (float(80 * 2**30), "By", "gauge", "80 GiB"), (45.0, "Cel", "gauge", "45 °C"),
    (0.5, "1", "gauge", "0.5"), (3.0, "{error}", "counter", "+3 error"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "unit", "instrument", "text"), CASES)
def test_quantities(value: float, unit: str, instrument: str, text: str) -> None:
    metric = Metric("m", unit, "counter" if instrument == "counter" else "gauge", "")
    assert quantity(value, metric) == text
