"""Drivers older than some of the functions, and structs of which they know another version."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.collectors.nvml.nvml_tools import EACH_TIME, agree, both
from tests.nvml_stub.stub import NvmlStub, compile_stub

from flyball_collectors.nvml import NvmlCollector, open_nvml
from flyball_collectors.nvml.readings import current, detail

NEWER = (
    "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc",
    "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetRowRemapperHistogram", "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlEventSetWait_v2", "nvmlDeviceGetNvLinkRemoteDeviceType",
)  # fmt: skip


@pytest.fixture(scope="module")
def old_library(nvml_stub_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = compile_stub(tmp_path_factory.mktemp("old"), without=NEWER)
    assert library is not None
    return library


@pytest.fixture
def old(old_library: Path, tmp_path: Path) -> Iterator[NvmlStub]:
    library = ctypes.CDLL(os.fspath(old_library))
    stub = NvmlStub(tmp_path / "old-gpus")
    assert library.stub_open(os.fsencode(stub.path))
    yield stub
    library.stub_open(None)


def test_a_driver_without_the_newer_functions_reports_the_rest(old: NvmlStub, old_library: Path) -> None:
    collector = open_nvml("node", settings=EACH_TIME, library=os.fspath(old_library))
    assert isinstance(collector, NvmlCollector)
    rows, details = both(collector)
    (device,) = collector.parts().devices
    assert collector.watch.reason == ""
    collector.close()
    assert (device.architecture, device.compute_capability) == ("", "9.0")
    agree(
        rows[0],
        {
            "hw.gpu.memory.usage": 21 << 30,  # with what is reserved
            "hw.gpu.memory.limit": 80 << 30,
            "hw.temperature{sensor=gpu}": 45,
            "hw.power": 300,
        },
    )
    absent = ("margin", "reserved", "clock.event", "process", "activity")
    assert not [key for key in rows[0] if any(word in key for word in absent)]
    agree(details[0], {"nvidia.gpu.pcie.link{value=max,what=width}": 16})


@pytest.mark.parametrize("code", [25, 13, 3])
def test_a_version_that_the_driver_does_not_know_is_like_no_function(nvml_stub: NvmlStub, code: int) -> None:
    for call in ("memory", "temperature", "margin", "fabric", "sram", "gpm"):
        nvml_stub.set_result(call, code)
    collector = open_nvml("node", settings=EACH_TIME)
    assert isinstance(collector, NvmlCollector)
    rows, details = both(collector)
    both(collector)
    collector.close()
    agree(rows[0], {"hw.gpu.memory.usage": 21 << 30, "hw.temperature{sensor=gpu}": 45})
    assert "nvidia.gpu.fabric.state" not in details[0]
    assert nvml_stub.requests("margin") == (2 if code == 25 else 1)  # the second time through NVIDIA's own binding


REFUSED = "nvmlDeviceGetMarginTemperature"


def test_a_struct_that_only_nvidia_s_binding_knows_is_read_through_it_and_reported(
    nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml_stub.set_gpus(2)
    wrong = 9 << 24 | 8
    for module, name in ((current, "MARGIN_V1"), (current, "TEMPERATURE_V1"), (current, "MEMORY_V2")):
        monkeypatch.setattr(module, name, wrong)
    for name in ("FABRIC_V2", "SRAM_V1"):
        monkeypatch.setattr(detail, name, wrong)
    nvml_stub.gpu().ecc[2], nvml_stub.gpu().ecc[3] = 5, 3
    nvml_stub.set_result("temperature_v1", 3)
    collector = open_nvml("node", settings=EACH_TIME)
    assert isinstance(collector, NvmlCollector)
    rows, details = [both(collector) for _ in range(3)][-1]
    agree(rows[1], {"nvidia.gpu.temperature.margin": 40, "hw.temperature{sensor=gpu}": 45})
    agree(rows[0], {"nvidia.gpu.memory.reserved": 1 << 30, "hw.gpu.memory.usage": 20 << 30})
    agree(details[0], {"nvidia.gpu.fabric.state": 3, "nvidia.gpu.ecc.errors{location=sram,type=uncorrected}": 3})
    events = collector.events()
    assert {(one.kind, one.severity) for one in events} == {("telemetry_fallback", "info")}
    assert len(events) == 5  # one for each call, however many GPUs
    assert any(one.message.startswith(REFUSED) and "nvidia-ml-py instead" in one.message for one in events)
    assert collector.refused[REFUSED] == ""
    collector.close()


def test_without_the_binding_it_is_reported_what_is_not_read(
    nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "MARGIN_V1", 9 << 24 | 8)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    collector = open_nvml("node", settings=EACH_TIME)
    assert isinstance(collector, NvmlCollector)
    assert "nvidia.gpu.temperature.margin" not in both(collector)[0][0]
    both(collector)
    (event,) = collector.events()
    assert (event.kind, event.severity) == ("telemetry_fallback", "warning")
    assert event.message.endswith("not read: nvidia-ml-py is not installed; pip install 'flyball[agent]'")
    assert collector.refused == {REFUSED: "nvidia-ml-py is not installed; pip install 'flyball[agent]'"}
    collector.close()


def test_the_agent_does_not_load_the_binding_without_need(nvml_stub: NvmlStub) -> None:
    del nvml_stub
    modules = "flyball_collectors.agent.run, flyball_collectors.agent.diagnosis.doctor"
    code = f"import sys, {modules}; assert 'pynvml' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
