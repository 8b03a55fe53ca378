"""Energy of the host from RAPL zones that the tests write."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flyball_collectors.agent.diagnosis.doctor import explain
from flyball_collectors.host import HostCollector
from flyball_collectors.host.energy import EnergyMeter, find_zones
from flyball_contracts.config import AgentConfig, Config
from flyball_contracts.metrics import HOST

S = 1_000_000_000
RANGE_UJ = 262_143_328_850
CPU, MEMORY = "hw.energy{type=cpu}", "hw.energy{type=memory}"


def write_zone(root: Path, zone: str, name: str, energy_uj: int | str, range_uj: int = RANGE_UJ) -> Path:
    folder = root / "sys/class/powercap" / zone
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    counter = folder / "energy_uj"
    counter.write_text(f"{energy_uj}\n")
    return counter


def two_sockets(root: Path, joules: int) -> None:
    (root / "proc").mkdir(exist_ok=True)
    for socket in (0, 1):
        write_zone(root, f"intel-rapl:{socket}", f"package-{socket}", 10**6 * joules)
        write_zone(root, f"intel-rapl:{socket}:0", "core", 7 * 10**6 * joules)
        write_zone(root, f"intel-rapl:{socket}:1", "dram", 10**5 * joules)
    write_zone(root, "intel-rapl:2", "psys", 99 * 10**6 * joules)
    write_zone(root, "intel-rapl-mmio:0", "package-0", 10**6 * joules)


def row(collector: HostCollector) -> dict[str, float]:
    (reading,) = collector.read(S, S)
    return {key: float(reading.values[0, HOST.column(key)]) for key in (CPU, MEMORY)}


def test_packages_and_memory_count_once(tmp_path: Path) -> None:
    two_sockets(tmp_path, 1000)
    collector = HostCollector(tmp_path)
    assert all(np.isnan(value) for value in row(collector).values())
    two_sockets(tmp_path, 1150)
    assert row(collector) == {CPU: pytest.approx(300), MEMORY: pytest.approx(30)}
    names = [zone.name for zone in find_zones(tmp_path)]
    assert sorted(names) == ["dram", "dram", "package-0", "package-1"]


@settings(deadline=None)
@given(st.lists(st.integers(0, RANGE_UJ // 3), min_size=1, max_size=12), st.integers(0, RANGE_UJ - 1))
def test_no_energy_is_lost_where_counters_start_again(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], start: int
) -> None:
    root = tmp_path_factory.mktemp("rapl")
    total = start
    counter = write_zone(root, "intel-rapl:0", "package-0", total)
    meter = EnergyMeter(root)
    assert meter.read() == {CPU: 0}
    for step in steps:
        total += step
        counter.write_text(str(total % RANGE_UJ))
        assert meter.read() == {CPU: pytest.approx((total - start) / 1e6)}


def test_a_counter_that_was_reset_leaves_a_gap(tmp_path: Path) -> None:
    counter = write_zone(tmp_path, "intel-rapl:0", "package-0", 50_000_000)
    meter = EnergyMeter(tmp_path)
    meter.read()
    counter.write_text("1000000")
    assert meter.read() == {}
    counter.write_text("3000000")
    assert meter.read() == {CPU: pytest.approx(2)}


def test_one_package_that_cannot_be_read_makes_the_sum_unknown(tmp_path: Path) -> None:
    two_sockets(tmp_path, 1)
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").unlink()
    assert set(EnergyMeter(tmp_path).read()) == {MEMORY}


@pytest.mark.parametrize("text", ["", "x", "1 2 x", "\x00"])
def test_files_that_make_no_sense_are_unknown(tmp_path: Path, text: str) -> None:
    write_zone(tmp_path, "intel-rapl:0", "package-0", text).parent.joinpath("max_energy_range_uj").write_text(text)
    meter = EnergyMeter(tmp_path)
    assert meter.read() == meter.read() == {}


def finding(root: Path) -> tuple[bool, str, str]:
    found = explain(Config(agent=AgentConfig(root=str(root), disabled=("nvml",))), wait=lambda seconds: None)
    (one,) = [f for f in found if f.name == "host.energy"]
    return one.ok, one.detail, one.remedy


def test_the_doctor_reports_why_energy_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert finding(tmp_path)[0] is False
    two_sockets(tmp_path, 1)
    assert finding(tmp_path)[:2] == (True, "RAPL counts package-0, dram, package-1, dram")
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").unlink()
    ok, detail, remedy = finding(tmp_path)
    assert not ok
    assert detail.startswith("package-1: energy_uj cannot be read")
    assert "CAP_DAC_READ_SEARCH" in remedy
