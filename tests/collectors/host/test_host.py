"""The host's sources on trees that the tests write, and on this machine."""

from pathlib import Path

import numpy as np
import pytest

from flyball_collectors.host import HostCollector
from flyball_contracts.metrics import HOST

S = 1_000_000_000


class Tree:
    """A root folder with kernel files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def cpu(self, *jiffies: int, cpus: int = 2) -> None:
        words = " ".join(map(str, jiffies))
        self.write("proc/stat", f"cpu  {words} 0 0\n" + "".join(f"cpu{i} 0\n" for i in range(cpus)) + "intr 5\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def read(collector: HostCollector) -> dict[str, float]:
    """Values of one read that are known."""
    (reading,) = collector.read(S, S)
    assert reading.schema == HOST.schema
    assert reading.values.shape == (1, len(HOST))
    assert reading.values.dtype == np.float32
    return {key: float(reading.values[0, i]) for key, i in HOST.columns.items() if not np.isnan(reading.values[0, i])}


def test_cpu_time_is_an_increase_in_seconds(tree: Tree) -> None:
    tree.cpu(100, 100, 100, 1000, 10, 5, 5, 0)
    collector = HostCollector(tree.root)
    first = read(collector)
    assert not any(key.startswith("system.cpu.time") for key in first)
    assert first["system.cpu.logical.count"] == 2
    tree.cpu(150, 110, 120, 1100, 20, 10, 10, 10)
    second = read(collector)
    assert second["system.cpu.time{mode=user}"] == pytest.approx(0.6)
    assert second["system.cpu.time{mode=system}"] == pytest.approx(0.3)
    assert second["system.cpu.time{mode=idle}"] == pytest.approx(1.0)
    assert second["system.cpu.time{mode=iowait}"] == pytest.approx(0.1)
    assert second["system.cpu.time{mode=steal}"] == pytest.approx(0.1)
    assert second["system.cpu.utilization"] == pytest.approx(1.0 / 2.1)


def test_the_load_is_known_though_the_time_waited_for_disks_falls(tree: Tree) -> None:
    tree.cpu(100, 0, 50, 1000, 20, 0, 0, 0)
    collector = HostCollector(tree.root)
    read(collector)
    tree.cpu(150, 0, 60, 1100, 19, 0, 0, 0)
    values = read(collector)
    assert "system.cpu.time{mode=iowait}" not in values
    assert values["system.cpu.utilization"] == pytest.approx(60 / 160)


def test_a_counter_that_goes_down_is_unknown(tree: Tree) -> None:
    tree.cpu(100, 0, 0, 1000, 0, 0, 0, 0)
    collector = HostCollector(tree.root)
    read(collector)
    tree.cpu(50, 0, 0, 1100, 0, 0, 0, 0)
    values = read(collector)
    assert "system.cpu.time{mode=user}" not in values
    assert "system.cpu.utilization" not in values
    assert values["system.cpu.time{mode=idle}"] == pytest.approx(1.0)


def test_memory(tree: Tree) -> None:
    tree.write(
        "proc/meminfo",
        "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\nBuffers: 50 kB\nCached: 200 kB\n"
        "SwapTotal: 100 kB\nSwapFree: 60 kB\nSReclaimable: 50 kB\nHugePages_Total: 0\n",
    )
    tree.write("proc/vmstat", "nr_free_pages 9\npgfault 500\npgmajfault 7\n")
    collector = HostCollector(tree.root)
    first = read(collector)
    assert first["system.memory.limit"] == 1000 * 1024
    assert first["system.memory.usage{state=used}"] == 400 * 1024
    assert first["system.memory.usage{state=cached}"] == 200 * 1024
    assert first["system.memory.linux.available"] == 600 * 1024
    assert first["system.memory.utilization"] == pytest.approx(0.4)
    assert first["system.paging.usage"] == 40 * 1024
    assert collector.parts().memory_bytes == 1000 * 1024
    tree.write("proc/vmstat", "pgmajfault 10\n")
    assert read(collector)["system.paging.faults{type=major}"] == 3


def test_pressure(tree: Tree) -> None:
    line = "{} avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"
    collector = HostCollector(tree.root)
    for total in (1_000_000, 1_250_000):
        tree.write("proc/pressure/cpu", line.format("some", total) + line.format("full", 0))
        tree.write("proc/pressure/io", line.format("some", 2 * total) + line.format("full", total))
        values = read(collector)
    assert values["system.linux.psi.total_time{resource=cpu,stall=some}"] == pytest.approx(0.25)
    assert values["system.linux.psi.total_time{resource=io,stall=some}"] == pytest.approx(0.5)
    assert values["system.linux.psi.total_time{resource=io,stall=full}"] == pytest.approx(0.25)
    assert not any("resource=memory" in key for key in values)


def disks(**sectors: int) -> str:
    line = "   8       0 {} 10 0 {} 500 20 0 {} 1000 0 0 0 0 0 0 0\n"
    return "".join(line.format(name, count, 2 * count) for name, count in sectors.items())


@pytest.mark.parametrize("with_sysfs", [True, False])
def test_only_whole_disks_count(tree: Tree, with_sysfs: bool) -> None:
    if with_sysfs:
        for name in ("sda", "nvme0n1", "loop0", "zram0", "dm-0", "md127"):
            (tree.root / "sys/block" / name).mkdir(parents=True)
    other = {"loop0": 7, "ram1": 7, "zram0": 7, "sda1": 7, "nvme0n1p1": 7, "sr0": 7, "md127": 7}
    tree.write("proc/diskstats", disks(sda=100, nvme0n1=100, **other) + disks(**{"dm-0": 7}))
    collector = HostCollector(tree.root)
    assert not any(key.startswith("system.disk") for key in read(collector))
    other = dict.fromkeys(other, 7000)
    tree.write("proc/diskstats", disks(sda=110, nvme0n1=101, **other) + disks(**{"dm-0": 7000}))
    values = read(collector)
    assert values["system.disk.io{direction=read}"] == 11 * 512
    assert values["system.disk.io{direction=write}"] == 22 * 512
    assert values["system.disk.operation_time{direction=read}"] == 0


def test_network_leaves_the_loopback_out(tree: Tree) -> None:
    header = "Inter-|   Receive |  Transmit\n face |bytes packets\n"
    line = "{}: {} 1 {} 0 0 0 0 0 {} 1 {} 0 0 0 0 0\n"
    collector = HostCollector(tree.root)
    for received, errors, sent in ((1000, 0, 500), (3000, 2, 600)):
        lines = [line.format(name, received, errors, sent, errors) for name in ("    lo", "  eth0", "ib0")]
        tree.write("proc/net/dev", header + "".join(lines))
        values = read(collector)
    assert values["system.network.io{direction=receive}"] == 4000
    assert values["system.network.io{direction=transmit}"] == 200
    assert values["system.network.errors{direction=receive}"] == 4
    assert values["system.network.errors{direction=transmit}"] == 4


def test_bytes_on_a_bond_or_a_bridge_count_once(tree: Tree) -> None:
    header = "Inter-|   Receive |  Transmit\n face |bytes packets\n"
    line = "{}: {} 1 0 0 0 0 0 0 {} 1 0 0 0 0 0 0\n"

    def traffic(names: tuple[str, ...]) -> float:
        collector = HostCollector(tree.root)
        for count in (1000, 3000):
            tree.write("proc/net/dev", header + "".join(line.format(name, count, count) for name in names))
            values = read(collector)
        return values["system.network.io{direction=receive}"]

    for name in ("lo", "bond0", "cni0", "veth1"):
        (tree.root / "sys/devices/virtual/net" / name).mkdir(parents=True)
    assert traffic(("lo", "eth0", "eth1", "bond0", "cni0", "veth1")) == 4000
    assert traffic(("lo", "veth1")) == 2000, "a container has no other"


def test_uptime_and_processes(tree: Tree) -> None:
    tree.write("proc/uptime", "123.45 600.00\n")
    for pid in (1, 22, 333):
        (tree.root / "proc" / str(pid)).mkdir()
    values = read(HostCollector(tree.root))
    assert values["system.uptime"] == pytest.approx(123.45)
    assert values["system.process.count"] == 3


GARBAGE = [
    "",
    "\n",
    "cpu\n",
    "cpu a b c d e f g h\n",
    "MemTotal:\n",
    "8 0 sda\n",
    "eth0: x\n",
    "some total=\n",
    "\x00\xff",
]


@pytest.mark.parametrize("text", GARBAGE)
def test_files_that_make_no_sense_give_nan(tree: Tree, text: str) -> None:
    for path in ("stat", "meminfo", "vmstat", "diskstats", "net/dev", "uptime", "pressure/cpu"):
        tree.write(f"proc/{path}", text)
    collector = HostCollector(tree.root)
    read(collector)
    left = {key for key in read(collector) if not key.startswith("flyball.agent")}
    assert left <= {"system.uptime"}  # which takes any number


def test_this_machine() -> None:
    collector = HostCollector()
    read(collector)
    values = read(collector)
    assert values["system.memory.limit"] > values["system.memory.linux.available"] > 0
    assert values["system.cpu.logical.count"] >= 1
    assert values["system.process.count"] >= 1
    assert values["system.uptime"] > 0
    assert values["flyball.agent.memory.rss"] > 1e6
    assert all(values[key] >= 0 for key in values)
    parts = collector.parts()
    assert parts.cpu_count == values["system.cpu.logical.count"]
    assert parts.memory_bytes is not None
