"""The agent against NVIDIA's own binding: value beside value, with a verdict that a wrong reading fails."""

import os
import subprocess
import sys
from ctypes import Structure, c_uint, c_ulonglong, c_void_p
from pathlib import Path

import pytest
from tests.nvml_stub.stub import GPU_IS_LOST, MPS, NOT_SUPPORTED, STATE_VARIABLE, NvmlStub

from flyball_collectors.agent.diagnosis.doctor import compare_gpus
from flyball_collectors.nvml.binding import Binding
from flyball_collectors.nvml.comparison import Compared
from flyball_collectors.nvml.readings import current
from flyball_contracts.config import AgentConfig, Config
from flyball_contracts.errors import ConfigError

CONFIG = Config(agent=AgentConfig(node="n1"))
LINK_FIELDS = (161, 162, 163, 221)


def fill(stub: NvmlStub) -> None:
    """Two GPUs that report everything, with a number of its own for each thing."""
    stub.set_gpus(2)
    stub.set_switched(4)
    for gpu in range(2):
        one = stub.gpu(gpu)
        one.threshold[:] = (95, 90)
        one.ecc[:] = (3, 1, 7, 5)
        one.reasons, one.pstate, one.fan = 0x24, 2, 31
        stub.set_processes([(11, 1 << 30, 5, 1), (12, 3 << 30, 5, 1)], gpu=gpu)
        one.processes[1].does = MPS
        fields = (3, 4, 74, 75, 83, 94, 138, 139, 142, 143, 144, 145, 185, 187, 188, 189, 192, 197, 198, 297)
        for number, field in enumerate(fields):
            stub.set_field(field, (number + 3) * 1000, gpu=gpu, scope=0xFFFFFFFF if field in (138, 139) else 0)
        for field in LINK_FIELDS:
            for link in range(4):
                stub.set_field(field, field + link, gpu=gpu, scope=link)


def compared() -> tuple[dict[tuple[int, str], Compared], list[str]]:
    rows, others = compare_gpus(CONFIG)
    assert len({(one.gpu, one.key) for one in rows}) == len(rows)
    return {(one.gpu, one.key): one for one in rows}, others


def test_all_that_the_agent_reads_is_what_the_binding_reads(nvml_stub: NvmlStub) -> None:
    fill(nvml_stub)
    found, others = compared()
    assert not others
    assert {one.verdict for one in found.values()} == {"same"}
    for gpu in range(2):
        reported = {key: (one.ours, one.theirs) for (at, key), one in found.items() if at == gpu}
        assert reported["hw.energy"] == (7.0, 7.0)
        assert reported["nvidia.gpu.nvlink.errors{type=crc}"] == (658.0, 658.0)
        assert reported["nvidia.gpu.tensor.activity"] == (0.25, 0.25)
        assert reported["memory of process 12"] == (3 << 30, 3 << 30)
        assert reported["nvidia.gpu.ecc.errors{location=sram,type=uncorrected}"] == (5.0, 5.0)
        assert len(reported) > 90


class Swapped(Structure):
    """nvmlMemory_v2_t as one could have got it wrong."""

    _fields_ = [
        ("version", c_uint), ("total", c_ulonglong), ("used", c_ulonglong), ("free", c_ulonglong),
        ("reserved", c_ulonglong),
    ]  # fmt: skip


def test_a_struct_that_the_agent_gets_wrong_is_seen(nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(nvml_stub)
    monkeypatch.setattr(current, "Memory2", Swapped)
    found, _ = compared()
    wrong = {key for (gpu, key), one in found.items() if not one.ok and gpu == 0}
    assert wrong == {"hw.gpu.memory.usage", "nvidia.gpu.memory.reserved", "hw.gpu.memory.utilization"}
    one = found[0, "hw.gpu.memory.usage"]
    assert (one.verdict, one.ours, one.theirs) == ("differs", 1 << 30, 20 << 30)


class Exchanged(Structure):
    """nvmlUtilization_t with its fields the wrong way round: 25 and 50 % instead of 50 and 25."""

    _fields_ = [("memory", c_uint), ("gpu", c_uint)]


def test_a_utilization_that_is_25_points_off_differs_also_beside_a_moving_load(
    nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other = "hw.gpu.utilization{task=general}", "nvidia.gpu.memory.controller.utilization"

    def verdicts(moves: int) -> dict[str, str]:
        def wait(seconds: float) -> None:
            del seconds
            nvml_stub.gpu().utilization += moves

        rows, _ = compare_gpus(CONFIG, wait=wait)
        return {one.key: one.verdict for one in rows}

    assert verdicts(7)[key] == "same"
    monkeypatch.setattr(current, "Utilization", Exchanged)
    nvml_stub.gpu().utilization = 50
    assert (verdicts(0)[key], verdicts(0)[other]) == ("differs", "differs")


def test_a_value_that_the_binding_does_not_have_is_not_taken_for_right(
    nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, lacks = Binding.current, "hw.gpu.utilization{task=encoder}"

    def without(self: Binding, handle: c_void_p) -> dict[str, float]:
        return {key: value for key, value in read(self, handle).items() if key != lacks}

    monkeypatch.setattr(Binding, "current", without)
    fill(nvml_stub)
    wrong = {(one.gpu, one.key, one.verdict) for one in compare_gpus(CONFIG)[0] if not one.ok}
    assert wrong == {(gpu, lacks, "ours alone") for gpu in range(2)}


def test_what_the_agent_does_not_see_and_what_moves_between_two_reads(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_result("margin", NOT_SUPPORTED)

    def wait(seconds: float) -> None:
        del seconds
        nvml_stub.set_result("margin", 0)
        nvml_stub.gpu().temperature += 1

    rows, _ = compare_gpus(CONFIG, wait=wait)
    found = {one.key: one.verdict for one in rows}
    assert found["nvidia.gpu.temperature.margin"] == "missing"
    assert found["hw.temperature{sensor=gpu}"] == "same"
    assert not next(one for one in rows if one.verdict == "missing").ok


def test_a_gpu_that_does_not_answer_is_reported(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.gpu(1).lost = GPU_IS_LOST
    rows, others = compare_gpus(CONFIG)
    assert {one.gpu for one in rows} == {0}
    assert others
    assert others[0].startswith("GPU 1: ")


def test_without_gpus_or_binding_there_is_one_error(nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ConfigError, match=r"nvidia-ml-py is not installed; pip install 'flyball\[agent\]'"):
        compare_gpus(CONFIG)
    nvml_stub.state.init = 9
    with pytest.raises(ConfigError, match="load the driver"):
        compare_gpus(CONFIG)


def test_the_command_prints_both_sides_and_fails_where_they_differ(
    nvml_stub: NvmlStub, nvml_stub_library: Path
) -> None:
    fill(nvml_stub)
    environ = {
        **os.environ, "LD_LIBRARY_PATH": str(nvml_stub_library.parent), STATE_VARIABLE: str(nvml_stub.path),
        "COLUMNS": "160",
    }  # fmt: skip
    command = [sys.executable, "-m", "flyball_cli", "doctor", "--nvml"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    row = next(line.split() for line in done.stdout.splitlines() if "hw.energy" in line)
    assert row == ["0", "hw.energy", "J", "7", "7", "same"]
    nvml_stub.set_field(230, 3, kind=9)  # of a type that neither knows
    nvml_stub.gpu(1).lost = GPU_IS_LOST
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "GPU 1" in done.stdout
