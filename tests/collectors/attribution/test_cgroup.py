"""Control groups of both versions in trees that the tests write."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from flyball_collectors.host.cgroup import CgroupReader
from flyball_collectors.host.cgroup_v1 import LegacyReader, hierarchy_of, reader_of
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
    ("files", "found"),
    [
        (["cgroup.controllers"], ("", False)),
        (["cgroup.controllers", "memory/tasks"], ("", False)),
        (["unified/cgroup.controllers", "memory/tasks", "cpu,cpuacct/tasks"], ("memory", True)),
        (["cpu,cpuacct/tasks", "freezer/tasks"], ("cpu,cpuacct", True)),
        (["systemd/tasks", "memory"], None),
        ([], None),
    ],
    ids=["version 2", "version 2, and a folder", "hybrid", "version 1 without memory", "no controller", "nothing"],
)
def test_where_the_groups_of_a_host_are(tmp_path: Path, files: list[str], found: tuple[str, bool] | None) -> None:
    for file in files:
        write((tmp_path / "sys/fs/cgroup" / file).parent, {Path(file).name: ""})
    hierarchy = hierarchy_of(tmp_path)
    assert hierarchy == (None if found is None else (tmp_path / "sys/fs/cgroup" / found[0], found[1]))


FILES_V1 = {
    "cpu,cpuacct": {
        "cpuacct.usage": "2500000000\n",
        "cpu.stat": "nr_periods 10\nnr_throttled 2\nthrottled_time 300000000\n",
        "cpu.cfs_quota_us": "150000\n",
        "cpu.cfs_period_us": "100000\n",
    },
    "memory": {
        "memory.usage_in_bytes": "1000\n",
        "memory.limit_in_bytes": "4096\n",
        "memory.stat": "cache 4\ninactive_file 1\ntotal_cache 400\ntotal_inactive_file 250\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    },
    "blkio": {
        "blkio.throttle.io_service_bytes_recursive": "259:0 Read 100\n259:0 Write 200\n259:0 Total 300\n"
        "253:0 Read 100\n253:0 Write 200\nTotal 600\n",
        "blkio.throttle.io_service_bytes": "259:0 Read 1\n259:0 Write 2\n",
    },
    "pids": {"pids.current": "12\n"},
}
PRESSURES = {name: text for name, text in FILES.items() if name.endswith("pressure")}


def host(root: Path, without: str = "", *, hybrid: bool = False) -> Path:
    """A host of version 1 with one group; where that is in the hierarchy in which groups are looked for."""
    (root / "sys/dev/block/253:0/dm").mkdir(parents=True, exist_ok=True)
    (root / "sys/dev/block/259:0").mkdir(parents=True, exist_ok=True)
    for controller, files in FILES_V1.items():
        if controller != without:
            write(root / "sys/fs/cgroup" / controller / "kubepods/pod", files)
    if hybrid:
        write(root / "sys/fs/cgroup/unified/kubepods/pod", PRESSURES)
    found = hierarchy_of(root)
    assert found is not None
    return found.groups / "kubepods/pod"


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_group_of_version_1_reports_the_same(tmp_path: Path, hybrid: bool) -> None:
    folder = host(tmp_path, hybrid=hybrid)
    reader = reader_of(tmp_path)
    assert isinstance(reader, LegacyReader)
    expected = {key: value for key, value in EXPECTED.items() if hybrid or "psi" not in key}
    assert dict(reader.read(folder)) == {key: pytest.approx(value) for key, value in expected.items()}


def test_a_controller_that_is_mounted_as_version_2_is_read_there(tmp_path: Path) -> None:
    folder = host(tmp_path, without="memory", hybrid=True)
    files = {name: text for name, text in FILES.items() if name.startswith("memory")}
    write(tmp_path / "sys/fs/cgroup/unified/kubepods/pod", files)
    values = reader_of(tmp_path).read(folder)
    assert values["container.memory.working_set"] == 750
    assert values["container.cpu.time"] == 2.5


def test_without_limits_and_before_kernel_5(tmp_path: Path) -> None:
    folder = host(tmp_path)
    write(folder, {"memory.limit_in_bytes": "9223372036854771712\n", "memory.oom_control": "under_oom 0\n"})
    write(tmp_path / "sys/fs/cgroup/cpu,cpuacct/kubepods/pod", {"cpu.cfs_quota_us": "-1\n"})
    (tmp_path / "sys/fs/cgroup/blkio/kubepods/pod/blkio.throttle.io_service_bytes_recursive").unlink()
    values = reader_of(tmp_path).read(folder)
    assert not values.keys() & {"container.memory.limit", "container.memory.oom", "container.cpu.limit"}
    assert values["container.disk.io{direction=write}"] == {"259:0": 2}
    assert reader_of(tmp_path).read(folder.with_name("gone")) == {}


@settings(deadline=None, max_examples=50)
@given(st.sampled_from([(c, f) for c, files in FILES_V1.items() for f in files]), st.text(max_size=60))
def test_no_file_of_version_1_makes_it_fail(
    tmp_path_factory: pytest.TempPathFactory, which: tuple[str, str], text: str
) -> None:
    root = tmp_path_factory.mktemp("host")
    folder = host(root)
    path = root / "sys/fs/cgroup" / which[0] / "kubepods/pod" / which[1]
    path.write_text(text, encoding="utf-8", errors="replace")
    assert reader_of(root).read(folder).keys() <= USAGE.columns.keys()
