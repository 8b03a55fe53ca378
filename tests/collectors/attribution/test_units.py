"""Which units there are, and which processes are theirs."""

from pathlib import Path

import pytest
from tests.collectors.attribution.cgroup_tree import CONTAINER, MOUNT, UIDS, CgroupTree, remove

from flyball_collectors.attribution.groups import find_groups
from flyball_collectors.attribution.owner import Owner
from flyball_collectors.attribution.processes import ProcessOwners
from flyball_collectors.attribution.units import Key, Units
from flyball_collectors.parameters import AttributionParameters

PATTERNS = AttributionParameters().groups
JOB = "/system.slice/slurmstepd.scope/job_7"


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    return CgroupTree(tmp_path)


def test_pods_and_jobs_are_found_wherever_they_are(tree: CgroupTree) -> None:
    tree.pod(0)
    tree.group(f"{tree.pod_path(0)}/cri-containerd-{CONTAINER}.scope")
    kind = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
    tree.group(f"{kind}/kubelet-kubepods-burstable-pod{UIDS[1].replace('-', '_')}.slice")
    tree.group(f"/kubepods/besteffort/pod{32 * 'f'}/{CONTAINER}")
    tree.group(f"{JOB}/step_0/user/task_0")
    tree.group("/system.slice/node2_slurmstepd.scope/job_8")
    tree.group("/system.slice/ssh.service")
    found = find_groups(tree.root / MOUNT, PATTERNS)
    assert {(owner.runtime, owner.unit) for owner in found} == {
        ("kubernetes", UIDS[0]),
        ("kubernetes", UIDS[1]),
        ("kubernetes", 32 * "f"),
        ("slurm", "7"),
        ("slurm", "8"),
    }
    assert found[Owner("slurm", "7")] == tree.root / MOUNT / JOB.lstrip("/")
    assert find_groups(tree.root / MOUNT, ()) == find_groups(tree.root / MOUNT, ("[", "a**")) == {}
    assert find_groups(tree.root / "nowhere", PATTERNS) == {}


def test_a_process_is_looked_up_once_and_keeps_its_owner_when_it_ends(tree: CgroupTree) -> None:
    tree.process(10, f"{JOB}/step_0", command="a) b (c")
    owners = ProcessOwners(tree.root)
    job = Owner("slurm", "7", "0", JOB)
    assert owners.find([10, 11]) == {10: job}
    tree.process(10, "/elsewhere")  # the same process: it was started at the same time
    assert owners.find([10]) == {10: job}
    tree.end(10)
    assert owners.find([10, 10]) == {10: job}
    assert owners.find([]) == {}
    assert owners.find([10]) == {}  # nobody remembers it any more


def test_a_number_that_was_given_to_another_process_belongs_to_nobody_at_first(tree: CgroupTree) -> None:
    owners = ProcessOwners(tree.root)
    tree.process(10, JOB, start=100)
    owners.find([10])
    tree.process(10, JOB, start=150)
    assert 10 in owners.find([10])  # another process of the same job
    tree.process(10, "/system.slice/x.service", start=200)
    assert owners.find([10]) == {}
    assert owners.find([10])[10].unit == "x.service"


def test_a_process_in_no_group_of_its_own_goes_by_its_command(tree: CgroupTree) -> None:
    tree.process(10, "/", command="a (b)")
    assert ProcessOwners(tree.root).find([10])[10].unit == "a (b)"


@pytest.mark.parametrize("text", ["", "10", "10 (x) S 1", "10 (x) S " + 30 * "x "])
def test_a_process_whose_file_makes_no_sense_has_no_owner(tree: CgroupTree, text: str) -> None:
    tree.process(10, JOB)
    (tree.root / "proc/10/stat").write_text(text)
    assert ProcessOwners(tree.root).find([10]) == {}


def test_a_pod_holds_its_devices_until_its_group_is_gone(tree: CgroupTree) -> None:
    folder = tree.pod(0)
    units = Units(tree.root / MOUNT, ())
    pod = Owner("kubernetes", UIDS[0], "", tree.pod_path(0))
    key: Key = ("kubernetes", UIDS[0])
    assert units.update({}) == {}
    assert units.update({pod: ["GPU-1"]})[key].folder == folder
    assert units.update({pod: ["GPU-2"]})[key].devices == {"GPU-1", "GPU-2"}
    assert units.update({})[key].devices == {"GPU-1", "GPU-2"}
    remove(folder)
    assert units.update({}) == {}


def test_a_service_holds_what_it_uses_now(tree: CgroupTree) -> None:
    units = Units(tree.root / MOUNT, ())
    tree.group("/system.slice/x.service")
    service = Owner("process", "x.service", "", "/system.slice/x.service")
    assert units.update({service: ["GPU-1"]})["process", "x.service"].devices == {"GPU-1"}
    assert units.update({}) == {}


def test_a_unit_whose_group_is_reported_from_elsewhere_has_the_one_that_was_found(tree: CgroupTree) -> None:
    folder = tree.pod(0)
    units = Units(tree.root / MOUNT, PATTERNS)
    relative = Owner("kubernetes", UIDS[0], "", f"/{folder.name}")
    assert units.update({relative: ["GPU-1"]})["kubernetes", UIDS[0]].folder == folder
    nowhere = Units(tree.root / MOUNT, ())
    assert nowhere.update({relative: ["GPU-1"]})["kubernetes", UIDS[0]].folder is None


def test_without_control_groups_that_can_be_read_only_use_counts() -> None:
    units = Units(None, PATTERNS)
    pod = Owner("kubernetes", UIDS[0], "", "/kubepods/pod")
    assert units.update({pod: ["GPU-1"]})["kubernetes", UIDS[0]].folder is None
    assert units.update({}) == {}
