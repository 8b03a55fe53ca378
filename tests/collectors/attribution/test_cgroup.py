"""Control groups of version 2 in trees that the tests write."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from flyball_collectors.host.cgroup import CgroupReader, unified_folder
from flyball_contracts.metrics import USAGE

FILES = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 10\nthrottled_usec 300000\n",
    "cpu.max": "150000 100000\n",
    "memory.current": "1000\n",
    "memory.max": "4096\n",
    "memory.stat": "anon 600\nfile 400\ninactive_file 250\nactive_file 150\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n",
    "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=700000\nfull avg10=0.00 avg60=0.00 total=1\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=200000\n",
    "io.stat": "259:0 rbytes=100 wbytes=200 rios=1 wios=1 dbytes=0 dios=0\n253:0 rbytes=100 wbytes=200 rios=1 wios=1\n",
    "pids.current": "12\n",
}
EXPECTED = {
    "container.cpu.time": 2.5,
    "container.cpu.throttled.time": 0.3,
    "container.cpu.limit": 1.5,
    "container.memory.usage": 1000,
    "container.memory.working_set": 750,
    "container.memory.limit": 4096,
    "container.memory.oom": 1,
    "container.linux.psi.total_time{resource=cpu,stall=some}": 0.7,
    "container.linux.psi.total_time{resource=memory,stall=some}": 0.2,
    "container.disk.io{direction=read}": {"259:0": 100},
    "container.disk.io{direction=write}": {"259:0": 200},
    "container.thread.count": 12,
}


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_group_in_the_units_of_the_layout(tmp_path: Path) -> None:
    (tmp_path / "sys/dev/block/253:0/dm").mkdir(parents=True)
    (tmp_path / "sys/dev/block/259:0").mkdir(parents=True)
    values = CgroupReader(tmp_path).read(write(tmp_path / "sys/fs/cgroup/pod", FILES))
    assert values.keys() == EXPECTED.keys() <= USAGE.columns.keys()
    assert dict(values) == {key: pytest.approx(value) for key, value in EXPECTED.items()}


def test_what_has_no_limit_or_no_controller_is_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path, {"cpu.max": "max 100000\n", "memory.max": "max\n", "memory.current": "5\n", "io.stat": ""})
    assert dict(CgroupReader(tmp_path).read(folder)) == {
        "container.memory.usage": 5,
        "container.disk.io{direction=read}": {},
        "container.disk.io{direction=write}": {},
    }
    assert CgroupReader(tmp_path).read(tmp_path / "gone") == {}


@settings(deadline=None)
@given(st.sampled_from(sorted(FILES)), st.text(max_size=60))
def test_no_file_makes_it_fail(tmp_path_factory: pytest.TempPathFactory, name: str, text: str) -> None:
    folder = tmp_path_factory.mktemp("group")
    (folder / name).write_text(text, encoding="utf-8", errors="replace")
    values = CgroupReader(folder).read(folder)
    assert values.keys() <= USAGE.columns.keys()


@pytest.mark.parametrize(
    ("files", "unified"),
    [(["cgroup.controllers"], True), (["unified/cgroup.controllers", "memory/tasks"], False), ([], False)],
)
def test_only_version_2_alone_is_read(tmp_path: Path, files: list[str], unified: bool) -> None:
    for file in files:
        write((tmp_path / "sys/fs/cgroup" / file).parent, {Path(file).name: ""})
    assert (unified_folder(tmp_path) is not None) == unified
