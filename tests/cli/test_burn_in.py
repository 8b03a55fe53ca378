"""The burn-in of a node: on this machine's CPU, for no GPU was at hand."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest
from click.testing import CliRunner

from flyball_cli.burn_in import all_reduce, run
from flyball_cli.burn_in.trial import Trial, wrong_sums
from flyball_cli.main import flyball
from flyball_contracts.burn_in import BurnIn, Device, read, summary, unchecked


def test_a_machine_that_is_well_passes_and_reports_it_in_one_line(tmp_path: Path) -> None:
    result = tmp_path / "result"
    done = CliRunner().invoke(flyball, ["doctor", "--burn-in", "0"], env={"FLYBALL_CHECK_RESULT": str(result)})
    assert done.exit_code == 0, done.output
    found = read(done.stdout)
    assert found is not None
    assert (found.passed, found.platform, found.rounds, found.problems) == (True, "cpu", 1, ())
    assert found.devices[0].matmul_flops is not None
    assert json.loads(result.read_text()) == json.loads(done.stdout)
    assert summary(done.stdout).startswith("1 cpu devices in ")


def test_gpus_that_jax_does_not_see_are_a_failure() -> None:
    found = run.burn_in(0.0, gpus=8)
    assert not found.passed
    assert "8 GPUs are to be checked, and jax sees 0" in found.problems[0]
    assert "pip install" in found.problems[0]


def test_one_wrong_element_of_a_product_is_found() -> None:
    product = np.arange(12, dtype=np.int32).reshape(3, 4)
    rows, columns = product.sum(axis=1).astype(np.int64), product.sum(axis=0).astype(np.int64)
    assert wrong_sums(product.sum(axis=1), product.sum(axis=0), rows, columns) == 0
    product[1, 2] += 1
    assert wrong_sums(product.sum(axis=1), product.sum(axis=0), rows, columns) == 2


def test_a_device_that_computes_wrongly_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Trial.round

    def spoiled(trial: Trial, *more: object) -> list[str]:
        trial.left = trial.left.at[0, 0].add(1.0)  # what a bit that flips in memory does
        return right(trial, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Trial, "round", spoiled)
    found = run.burn_in(60.0)
    assert not found.passed
    assert found.rounds == 1, "it ends with the first round that goes wrong"
    assert found.problems == ("cpu 0: 8 of 8 matrix products are wrong",)


def test_a_device_that_breaks_off_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> list[str]:
        raise RuntimeError("CUDA_ERROR_ECC_UNCORRECTABLE:\n uncorrectable ECC error")

    monkeypatch.setattr(Trial, "round", lost)
    assert run.burn_in(0.0).problems == ("cpu 0: RuntimeError: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error",)


@pytest.mark.parametrize("error", [ValueError("shape"), OSError("gone"), ImportError("no such part of jax")])
def test_what_breaks_off_in_any_way_has_not_passed(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(*_: object) -> list[str]:
        raise error

    monkeypatch.setattr(Trial, "round", broken)
    found = run.burn_in(0.0)
    assert not found.passed
    assert str(error) in found.problems[0]


def test_a_device_that_hangs_is_named_and_the_process_ends(tmp_path: Path) -> None:
    """In a process of its own, as only its end shows that nothing holds it."""
    spoiled = (
        "import time\n"
        "from flyball_cli.burn_in import run\n"
        "from flyball_cli.burn_in.trial import Trial\n"
        "run.STUCK_S = 1.0\n"
        "Trial.round = lambda *_: time.sleep(600)\n"
        "from flyball_cli.main import flyball\n"
        "flyball(['doctor', '--burn-in', '0'])\n"
    )
    result = tmp_path / "result"
    done = _run("-c", spoiled, FLYBALL_CHECK_RESULT=str(result))
    assert done.returncode == 1, done.stderr
    found = read(done.stdout)
    assert found is not None
    assert found.problems == ("cpu 0 has not ended after 1 s",)
    assert json.loads(result.read_text())["passed"] is False


def test_several_devices_add_up_numbers_together() -> None:
    done = _run("-m", "flyball_cli", "doctor", "--burn-in", "0", XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr
    found = read(done.stdout)
    assert found is not None
    assert (found.passed, len(found.devices)) == (True, 4)


def test_a_sum_that_is_wrong_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = cast("list[Any]", jax.local_devices())  # pyright: ignore[reportUnknownMemberType]
    assert all_reduce.AllReduce(devices).round(3) == {}
    right = all_reduce.total

    def spoiled(values: jax.Array) -> jax.Array:
        return right(values) + np.uint32(1)

    monkeypatch.setattr(all_reduce, "total", spoiled)
    assert all_reduce.AllReduce(devices).round(3) == {0: "a sum over all devices is wrong here"}


def _run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | more, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_device_much_slower_than_its_peers_is_not_well() -> None:
    devices = tuple(Device(name="H100", to_device_bytes_per_s=rate) for rate in (2e10, 2.1e10, 4e9, 1.9e10))
    (problem,) = run.slow_ones(devices)
    assert problem.startswith("gpu 2: to_device_bytes_per_s is 4e+09")
    assert run.slow_ones(devices[:1]) == []
    (problem,) = run.slow_ones(devices[1:3])
    assert problem.endswith("is 4e+09, and 2.1e+10 the median of the others")
    two = tuple(Device(name="H100", matmul_flops=rate) for rate in (4e14, 1e15))
    assert len(run.slow_ones(two)) == 1


@pytest.mark.parametrize(
    ("named", "count", "expected"),
    [("GPU-a,GPU-b", 2, ("GPU-a", "GPU-b")), ("GPU-a,GPU-b", 1, ()), ("all", 1, ()), ("", 1, ())],
)
def test_ids_are_reported_where_they_are_known(
    monkeypatch: pytest.MonkeyPatch, named: str, count: int, expected: tuple[str, ...]
) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", named)
    monkeypatch.setenv("PATH", "")
    assert run.gpu_ids(count) == expected


def test_what_a_check_reports_is_read_whoever_wrote_it() -> None:
    line = '{"passed": true, "ids": ["GPU-1"], "future": 1}'
    assert read(f"noise\n{line}\n") == BurnIn(passed=True, ids=("GPU-1",))
    assert unchecked(line, ("GPU-1", "GPU-2")) == ["GPU-2"]
    assert unchecked("all tests passed", ("GPU-1",)) == [], "another program is believed"
    unknown = json.dumps({"passed": True, "platform": "cpu"})
    assert unchecked(unknown, ("GPU-1",)) == ["GPU-1"], "a burn-in that does not know what it had shows nothing"
    assert summary("  level 3:\n  pass ") == "level 3: pass"
    assert read("") is None
