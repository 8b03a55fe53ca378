"""The stand-in's structs are those of nvidia-ml-py, and its state is what the tests write."""

import ctypes
from pathlib import Path

import pynvml  # type: ignore[import-untyped]
import pytest
from tests.nvml_stub.stub import STRUCTS

USED = [
    "c_nvmlFieldValue_t", "c_nvmlSample_t", "c_nvmlMemory_t", "c_nvmlMemory_v2_t", "c_nvmlBAR1Memory_t",
    "c_nvmlUtilization_t", "nvmlPciInfo_t", "c_nvmlProcessInfo_v3_t", "c_nvmlEventData_t",
    "c_nvmlTemperature_v1_t", "c_nvmlMarginTemperature_v1_t", "c_nvmlValue_t",
]  # fmt: skip


@pytest.mark.parametrize("name", USED)
def test_sizes_agree_with_nvidia_ml_py(nvml_stub_library: Path, name: str) -> None:
    kind: type[ctypes.Structure] = getattr(pynvml, name)
    assert _size_of(nvml_stub_library, name) == ctypes.sizeof(kind)


@pytest.mark.parametrize("name", STRUCTS)
def test_sizes_agree_with_the_test_side(nvml_stub_library: Path, name: str) -> None:
    assert _size_of(nvml_stub_library, name) == ctypes.sizeof(STRUCTS[name])


def _size_of(path: Path, name: str) -> int:
    library = ctypes.CDLL(str(path))
    library.stub_sizeof.restype = ctypes.c_ulong
    return int(library.stub_sizeof(name.encode()))
