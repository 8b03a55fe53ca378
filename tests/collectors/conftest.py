"""GPUs without a GPU: our stand-in for NVML, found by the unmodified agent under the library's own name."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

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
def nvml_stub(nvml_stub_library: Path, tmp_path: Path) -> Iterator[NvmlStub]:
    """One fresh GPU that this process sees as NVML's; `set_gpus` for more.

    A library that is loaded is found again by the name it is marked with, wherever it lies.
    """
    library = ctypes.CDLL(os.fspath(nvml_stub_library))
    library.stub_open.argtypes = [ctypes.c_char_p]
    stub = NvmlStub(tmp_path / "gpus")
    assert library.stub_open(os.fsencode(stub.path))
    yield stub
    library.stub_open(None)
