"""Drivers older than some of the functions, and structs of which they know another version."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.collectors.nvml_tools import EACH_TIME, agree, both
from tests.nvml_stub.stub import NvmlStub, compile_stub

from flyball_collectors.nvml import NvmlCollector, open_nvml

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


def test_a_driver_without_the_newer_functions_tells_the_rest(old: NvmlStub, old_library: Path) -> None:
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
    assert nvml_stub.asked("margin") == 1
