"""What the node can and cannot measure, and why."""

from pathlib import Path
from typing import Literal

import pytest
from tests.nvml_stub.stub import GPU_IS_LOST, NOT_SUPPORTED, NvmlStub

from flyball_collectors.agent.diagnosis import doctor
from flyball_collectors.agent.diagnosis.doctor import Finding, explain
from flyball_collectors.agent.sources import SOURCES
from flyball_collectors.parameters import AgentParameters, ExportParameters, WorkloadsParameters
from flyball_contracts.config import Config


def findings(root: Path | str = "/", *disabled: Literal["host", "nvml"]) -> dict[str, Finding]:
    config = Config(agent=AgentParameters(root=str(root), disabled=disabled))
    found = explain(config, wait=lambda seconds: None)
    assert len({finding.name for finding in found}) == len(found)
    assert all(finding.remedy for finding in found if not finding.ok)
    return {finding.name: finding for finding in found}


def test_this_machine_has_the_basics() -> None:
    found = findings("/", "nvml")
    assert found["host.cpu"].ok
    assert found["host.memory"].ok
    assert found["nvml"] == Finding("nvml", False, "switched off", "take nvml away from agent.disabled")


def test_a_kernel_without_pressure_is_given_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    found = findings(tmp_path, "nvml")
    assert not found["host.psi"].ok
    assert "psi=1" in found["host.psi"].remedy
    assert not found["host.cpu"].ok


def test_a_root_without_proc_is_the_only_finding(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path).values()
    assert (finding.name, finding.ok) == ("agent.root", False)


@pytest.mark.usefixtures("nvml_stub")
def test_outside_of_a_pod_all_else_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    workloads = WorkloadsParameters(discover=("kubernetes",))
    found = {
        one.name: one for one in explain(Config(agent=AgentParameters(workloads=workloads)), wait=lambda seconds: None)
    }
    assert not found["workload"].ok
    assert "the agent is no pod" in found["workload"].detail
    assert found["workload"].remedy == "run it as one, or take kubernetes away"
    assert found["host.cpu"].ok
    assert found["nvml"].ok


def test_gpus_that_lack_the_same_are_reported_together(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(4)
    nvml_stub.set_result("fan", NOT_SUPPORTED, gpu=2)
    for index in range(4):
        nvml_stub.gpu(index).gpm = 0
    found = findings("/", "host")
    assert found["nvml"].detail == "4 GPUs, driver 580.1-stub"
    assert "hw.fan.speed_ratio" not in found["nvml.gpu.0-1"].detail
    assert "hw.fan.speed_ratio" in found["nvml.gpu.2"].detail
    assert "nvidia.gpu.sm.activity" in found["nvml.gpu.0-1"].detail
    assert found["nvml.events"].ok


def test_gpus_that_do_not_answer_are_reported(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.gpu(1).lost = GPU_IS_LOST
    found = findings("/", "host")
    assert not found["nvml.gpu"].ok
    assert "GPU 1" in found["nvml.gpu"].detail


@pytest.mark.usefixtures("nvml_stub")
def test_every_source_is_reported(tmp_path: Path) -> None:
    for root in (Path("/"), tmp_path):
        (tmp_path / "proc").mkdir(exist_ok=True)
        reported = findings(root)
        for kind in SOURCES:
            assert any(name == kind.name or name.startswith(f"{kind.name}.") for name in reported), kind.name


def test_outputs_are_reported_with_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    export = ExportParameters(metrics_listen="127.0.0.1:9400", otlp_endpoint="http://127.0.0.1:4318/v1/metrics")
    config = Config(agent=AgentParameters(export=export, disabled=("nvml", "kmsg")))
    for present in (True, False):

        def installed(_module: str, found: bool = present) -> bool:
            return found

        monkeypatch.setattr(doctor, "installed", installed)
        found = {one.name: one for one in explain(config, wait=lambda seconds: None)}
        for key, extra in (("metrics_listen", "agent"), ("otlp_endpoint", "otlp")):
            finding = found[f"agent.export.{key}"]
            assert finding.ok is present
            assert present or finding.remedy == f"pip install 'flyball[{extra}]'"
