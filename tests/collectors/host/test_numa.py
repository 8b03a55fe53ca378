"""NUMA nodes of trees that the tests write."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flyball_collectors.agent.identity import Identity
from flyball_collectors.agent.inventory import build_inventory
from flyball_collectors.host import NumaCollector
from flyball_collectors.host.numa import cpus_of_list
from flyball_contracts.config import AgentConfig
from flyball_contracts.metrics import NUMA
from flyball_contracts.records import NumaNode

S = 1_000_000_000


def write_node(root: Path, node: int, cpus: str, total_kib: int, hit: int = 0) -> None:
    folder = root / f"sys/devices/system/node/node{node}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpulist").write_text(f"{cpus}\n")
    lines = (("MemTotal", total_kib), ("MemFree", total_kib // 4), ("MemUsed", total_kib - total_kib // 4))
    (folder / "meminfo").write_text("".join(f"Node {node} {name}:   {kib} kB\n" for name, kib in lines))
    (folder / "numastat").write_text(f"numa_hit {hit}\nnuma_miss 1\nnuma_foreign 2\ninterleave_hit 3\n")


def write_stat(root: Path, *times: tuple[int, int]) -> None:
    """Busy and idle jiffies of each CPU."""
    (root / "proc").mkdir(exist_ok=True)
    lines = [f"cpu{i} {busy} 0 0 {idle} 0 0 0 0 0 0\n" for i, (busy, idle) in enumerate(times)]
    (root / "proc/stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\n" + "".join(lines) + "intr 1\n")


def rows(collector: NumaCollector) -> list[dict[str, float]]:
    (reading,) = collector.read(S, S)
    assert reading.schema == NUMA.schema
    return [{key: float(row[i]) for key, i in NUMA.columns.items() if not np.isnan(row[i])} for row in reading.values]


def test_each_node_has_its_memory_pages_and_cpus(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/node").mkdir(parents=True)
    (tmp_path / "sys/devices/system/node/online").write_text("0,10\n")
    write_node(tmp_path, 10, "1,3", 400, hit=50)  # a GPU's memory or a gap in the numbers
    write_node(tmp_path, 0, "0,2", 800, hit=10)
    write_stat(tmp_path, (0, 0), (0, 0), (0, 0), (0, 0))
    collector = NumaCollector(tmp_path)
    assert collector.parts().numa == (
        NumaNode(id=0, cpu_count=2, memory_bytes=800 * 1024),
        NumaNode(id=10, cpu_count=2, memory_bytes=400 * 1024),
    )
    first = rows(collector)
    assert "system.cpu.utilization" not in first[0]
    write_stat(tmp_path, (10, 90), (100, 0), (30, 70), (100, 0))
    write_node(tmp_path, 0, "0,2", 800, hit=17)
    low, high = rows(collector)
    assert low["system.cpu.utilization"] == pytest.approx(0.2)
    assert high["system.cpu.utilization"] == 1.0
    assert low["system.memory.limit"] == 800 * 1024
    assert low["system.memory.usage{state=free}"] == 200 * 1024
    assert low["system.memory.usage{state=used}"] == 600 * 1024
    assert low["system.linux.numa.pages{state=hit}"] == 7
    assert high["system.linux.numa.pages{state=hit}"] == 0


def test_a_node_without_cpus_has_no_utilisation(tmp_path: Path) -> None:
    write_node(tmp_path, 0, "0", 800)
    write_node(tmp_path, 1, "", 800)
    write_stat(tmp_path, (0, 0))
    collector = NumaCollector(tmp_path)
    rows(collector)
    write_stat(tmp_path, (1, 1))
    low, high = rows(collector)
    assert low["system.cpu.utilization"] == 0.5
    assert "system.cpu.utilization" not in high
    assert high["system.cpu.logical.count"] == 0


def test_a_node_that_is_gone_keeps_an_empty_row(tmp_path: Path) -> None:
    for node in (0, 1):
        write_node(tmp_path, node, str(node), 800)
    collector = NumaCollector(tmp_path)
    for file in (tmp_path / "sys/devices/system/node/node1").iterdir():
        file.unlink()
    assert rows(collector)[1] == {"system.cpu.logical.count": 1}


def test_one_node_is_the_host_and_none_is_none(tmp_path: Path) -> None:
    assert NumaCollector(tmp_path).read(S, S) == []
    write_node(tmp_path, 0, "0-1", 800)
    collector = NumaCollector(tmp_path)
    assert collector.read(S, S) == []
    assert collector.parts().numa == ()


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", [0, 1, 2, 3, 8]), ("", []), ("5", [5]), ("3-1", []), ("x,2", [2]), ("0-99999999999", [])],
)
def test_cpu_lists(text: str, cpus: list[int]) -> None:
    assert sorted(cpus_of_list(text)) == cpus


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_cpu_list(text: str) -> None:
    assert all(cpu >= 0 for cpu in cpus_of_list(text))


def test_rows_are_the_nodes_of_the_inventory(tmp_path: Path) -> None:
    for node in (0, 1):
        write_node(tmp_path, node, str(node), 800)
    collector = NumaCollector(tmp_path)
    inventory = build_inventory(AgentConfig(), Identity("n1", "b1", 1), [collector.parts()], epoch=1, time_ns=1)
    assert [node.id for node in inventory.numa] == [0, 1]
    assert len(rows(collector)) == len(inventory.numa)


def test_this_machine() -> None:
    collector = NumaCollector()
    numa = collector.parts().numa
    assert sum(len(reading.values) for reading in collector.read(S, S)) == len(numa)
