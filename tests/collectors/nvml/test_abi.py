"""Our structs and the stand-in's are those of nvidia-ml-py, and the stand-in's state is what the tests write."""

import ctypes
from pathlib import Path

import pynvml  # type: ignore[import-untyped]
import pytest
from tests.nvml_stub.stub import STRUCTS

from flyball_collectors.nvml.calls import abi, fields
from flyball_collectors.nvml.readings import gpm, samples

OURS: dict[str, type[ctypes.Structure] | type[ctypes.Union]] = {
    "c_nvmlFieldValue_t": abi.FieldValue, "c_nvmlSample_t": abi.Sample, "c_nvmlMemory_t": abi.Memory,
    "c_nvmlMemory_v2_t": abi.Memory2, "c_nvmlBAR1Memory_t": abi.Bar1, "c_nvmlUtilization_t": abi.Utilization,
    "nvmlPciInfo_t": abi.Pci, "c_nvmlProcessInfo_v3_t": abi.ProcessInfo,
    "c_nvmlProcessUtilizationSample_t": abi.ProcessSample, "c_nvmlEventData_t": abi.EventData,
    "c_nvmlTemperature_v1_t": abi.Temperature, "c_nvmlMarginTemperature_v1_t": abi.Margin, "c_nvmlValue_t": abi.Value,
    "c_nvmlDeviceAttributes": abi.Attributes, "c_nvmlRowRemapperHistogramValues": abi.RemapHistogram,
    "c_nvmlGpuFabricInfo_v2_t": abi.Fabric, "c_nvmlEccSramErrorStatus_v1_t": abi.SramErrors,
    "c_nvmlGpmSupport_t": abi.GpmSupport, "c_nvmlGpmMetric_t": abi.GpmMetric,
}  # fmt: skip
VERSIONS = {
    "nvmlMemory_v2": abi.MEMORY_V2, "nvmlTemperature_v1": abi.TEMPERATURE_V1,
    "nvmlMarginTemperature_v1": abi.MARGIN_V1, "nvmlGpuFabricInfo_v2": abi.FABRIC_V2,
    "nvmlEccSramErrorStatus_v1": abi.SRAM_V1, "NVML_GPM_SUPPORT_VERSION": abi.GPM_V1,
    "NVML_GPM_METRICS_GET_VERSION": abi.GPM_V1,
}  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_sizes_and_places_agree_with_nvidia_ml_py(nvml_stub_library: Path, name: str) -> None:
    theirs: type[ctypes.Structure] = getattr(pynvml, name)
    assert _size_of(nvml_stub_library, name) == ctypes.sizeof(theirs) == ctypes.sizeof(OURS[name])
    assert set(_places(theirs)) <= set(_places(OURS[name]))  # a struct inside is written out here


@pytest.mark.parametrize("name", VERSIONS)
def test_versions_agree_with_nvidia_ml_py(name: str) -> None:
    assert getattr(pynvml, name) == VERSIONS[name]


def test_the_struct_of_gpm_is_nvidia_ml_py_s_with_more_room() -> None:
    theirs, ours = pynvml.c_nvmlGpmMetricsGet_t, abi.GpmMetrics
    assert _places(ours) == _places(theirs)
    assert ctypes.sizeof(ours) >= ctypes.sizeof(theirs)


def test_what_is_unpacked_by_hand_has_the_size_of_its_struct() -> None:
    assert fields.ANSWER.size == fields.ANSWERS.itemsize == ctypes.sizeof(abi.FieldValue)
    assert samples.SAMPLE.size == ctypes.sizeof(abi.Sample)
    assert gpm.METRIC.size == ctypes.sizeof(abi.GpmMetric)


@pytest.mark.parametrize("name", STRUCTS)
def test_sizes_agree_with_the_test_side(nvml_stub_library: Path, name: str) -> None:
    assert _size_of(nvml_stub_library, name) == ctypes.sizeof(STRUCTS[name])


def _places(kind: type[ctypes.Structure] | type[ctypes.Union]) -> list[int]:
    """Where each member begins."""
    return [getattr(kind, name).offset for name, *_ in kind._fields_]


def _size_of(path: Path, name: str) -> int:
    library = ctypes.CDLL(str(path))
    library.stub_sizeof.restype = ctypes.c_ulong
    return int(library.stub_sizeof(name.encode()))
