"""The whole agent in a process of its own, which finds our NVML as it would find the driver's."""

import os
import subprocess
import sys
from pathlib import Path

from tests.nvml_stub.stub import STATE_VARIABLE, NvmlStub

SCRIPT = """
import sys
from flyball_collectors.agent import read_once
from flyball_collectors.agent.diagnosis.doctor import explain
from flyball_contracts.config import Config
from flyball_contracts.metrics import GPU

heavy = {"jax", "faust", "polars"} & set(sys.modules)
assert not heavy, heavy
gpus = [r for r in read_once(Config()).readings if r.schema == GPU.schema]
assert len(gpus) == 1
print(gpus[0].values[:, GPU.column("hw.power")].tolist())
print([f.detail for f in explain(Config()) if f.name == "nvml"])
"""


def test_the_unmodified_agent_finds_the_library_by_itself(nvml_stub_library: Path, tmp_path: Path) -> None:
    stub = NvmlStub(tmp_path / "gpus", gpus=2)
    stub.set_field(186, 123_000, gpu=1)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(nvml_stub_library.parent),
        STATE_VARIABLE: str(stub.path),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["[300.0, 123.0]", "['2 GPUs, driver 580.1-stub']"]
