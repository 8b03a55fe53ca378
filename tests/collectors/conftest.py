"""GPUs without a GPU: our stand-in for NVML, loaded by the unmodified nvidia-ml-py."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pynvml  # type: ignore[import-untyped]
import pytest
from tests.nvml_stub.stub import NvmlStub, compile_stub


@pytest.fixture(scope="session")
def nvml_stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled stand-in; its folder serves as LD_LIBRARY_PATH."""
    library = compile_stub(tmp_path_factory.mktemp("nvml"))
    if library is None:
        pytest.skip("no C compiler (cc) to build the stand-in for NVML; install gcc")
    return library


@pytest.fixture
def nvml_stub(nvml_stub_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlStub]:
    """One fresh GPU that this process sees through nvidia-ml-py; `set_gpus` for more."""
    library = ctypes.CDLL(os.fspath(nvml_stub_library))
    library.stub_open.argtypes = [ctypes.c_char_p]
    stub = NvmlStub(tmp_path / "gpus")
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    assert library.stub_open(os.fsencode(stub.path))
    yield stub
    library.stub_open(None)
