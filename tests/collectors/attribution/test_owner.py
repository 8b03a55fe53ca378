"""Pods, jobs, containers and services from the control groups of a process."""

import pytest
from hypothesis import given, settings, strategies as st

from flyball_collectors.attribution.owner import Owner, owner_of, owner_of_path

UID = "0a1b2c3d-1111-2222-3333-444455556666"
UID_ = UID.replace("-", "_")
HASH = "c8d1e2" + 26 * "f"
ID, ID2 = 64 * "a", 64 * "7"
SLICE = f"kubepods-burstable-pod{UID_}.slice"
SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"
CGROUPFS = f"/kubepods/burstable/pod{UID}"
BEST_EFFORT = "kubelet-kubepods-besteffort"
KIND = f"/kubelet.slice/kubelet-kubepods.slice/{BEST_EFFORT}.slice/{BEST_EFFORT}-pod{UID_}.slice"
IN_DOCKER = f"/system.slice/docker-{ID2}.scope"
GUARANTEED = f"/kubepods.slice/kubepods-pod{UID_}.slice"
SLURM = "/system.slice/slurmstepd.scope"
USER = "/user.slice/user-1000.slice"


def pod(path: str, container: str = ID, uid: str = UID) -> Owner:
    return Owner("kubernetes", uid, container, path)


PODS = [
    (f"{SYSTEMD}/cri-containerd-{ID}.scope", pod(SYSTEMD)),
    (f"{SYSTEMD}/crio-{ID}.scope", pod(SYSTEMD)),
    (f"{SYSTEMD}/crio-{ID}.scope/container", pod(SYSTEMD)),
    (f"{SYSTEMD}/docker-{ID}.scope", pod(SYSTEMD)),
    (f"{SYSTEMD}/crio-conmon-{ID}.scope", pod(SYSTEMD, "")),
    (f"{SYSTEMD}/cri-containerd-{ID}.scope/system.slice/docker.service", pod(SYSTEMD)),
    (SYSTEMD, pod(SYSTEMD, "")),
    (f"{GUARANTEED}/cri-containerd-{ID}.scope", pod(GUARANTEED)),
    (f"{CGROUPFS}/{ID}", pod(CGROUPFS)),
    (f"/kubepods/pod{UID}/{ID}", pod(f"/kubepods/pod{UID}")),
    (f"{CGROUPFS}/crio-{ID}", pod(CGROUPFS)),
    (f"{CGROUPFS}/{ID} (deleted)", pod(CGROUPFS)),
    (f"{CGROUPFS}/{ID}/docker/{ID2}", pod(CGROUPFS)),
    (f"/kubepods/besteffort/pod{HASH}/{ID}", pod(f"/kubepods/besteffort/pod{HASH}", uid=HASH)),
    (f"{KIND}/cri-containerd-{ID}.scope", pod(KIND)),
    (f"/docker/{ID2}/kubelet{CGROUPFS}/{ID}", pod(f"/docker/{ID2}/kubelet{CGROUPFS}")),
    (f"{IN_DOCKER}{KIND}/cri-containerd-{ID}.scope", pod(f"{IN_DOCKER}{KIND}")),
    (f"/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}", pod("")),
    (f"/../../pod{UID}/{ID}", pod(f"/pod{UID}")),
    (f"/../../../kubepods-burstable.slice/{SLICE}/crio-{ID}.scope", pod(f"/kubepods-burstable.slice/{SLICE}")),
    (f"/../{SLICE}/crio-{ID}.scope", pod(f"/{SLICE}")),
    (f"/../../../..{SYSTEMD}/crio-{ID}.scope", pod(SYSTEMD)),
    (f"/custom.slice/custom-kubepods.slice/custom-kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
     pod(f"/custom.slice/custom-kubepods.slice/custom-kubepods-pod{UID_}.slice")),
]  # fmt: skip
JOBS = [
    (f"{SLURM}/job_123/step_0/user/task_0", Owner("slurm", "123", "0", f"{SLURM}/job_123")),
    (f"{SLURM}/job_123/step_batch/user/task_special", Owner("slurm", "123", "batch", f"{SLURM}/job_123")),
    (f"{SLURM}/job_9/step_extern/slurm", Owner("slurm", "9", "extern", f"{SLURM}/job_9")),
    (f"{SLURM}/job_9", Owner("slurm", "9", "", f"{SLURM}/job_9")),
    (
        "/system.slice/node1_slurmstepd.scope/job_5/step_interactive/user",
        Owner("slurm", "5", "interactive", "/system.slice/node1_slurmstepd.scope/job_5"),
    ),
    ("/slurm/uid_1000/job_7/step_0/task_1", Owner("slurm", "7", "0", "/slurm/uid_1000/job_7")),
    ("/slurm_node1/uid_0/job_7/step_batch", Owner("slurm", "7", "batch", "/slurm_node1/uid_0/job_7")),
    (
        f"{CGROUPFS}/{ID}{SLURM}/job_3/step_0/user/task_0",
        Owner("slurm", "3", "0", f"{CGROUPFS}/{ID}{SLURM}/job_3"),
    ),
]
CONTAINERS = [
    (f"/docker/{ID}", Owner("container", ID, "", f"/docker/{ID}")),
    (f"/system.slice/docker-{ID}.scope", Owner("container", ID, "", f"/system.slice/docker-{ID}.scope")),
    (f"/machine.slice/libpod-{ID}.scope/container", Owner("container", ID, "", f"/machine.slice/libpod-{ID}.scope")),
    (
        f"{USER}/user@1000.service/user.slice/libpod-{ID}.scope",
        Owner("container", ID, "", f"{USER}/user@1000.service/user.slice/libpod-{ID}.scope"),
    ),
    (f"/libpod_parent/libpod-{ID}", Owner("container", ID, "", f"/libpod_parent/libpod-{ID}")),
    (f"/system.slice/nerdctl-{ID}.scope", Owner("container", ID, "", f"/system.slice/nerdctl-{ID}.scope")),
    (f"/default/{ID}", Owner("container", ID, "", f"/default/{ID}")),
    (f"/ecs/{32 * 'b'}/{ID}", Owner("container", ID, "", f"/ecs/{32 * 'b'}/{ID}")),
    (f"/machine.slice/machine-libpod_pod_{ID2}.slice/libpod-{ID}.scope",
     Owner("container", ID, "", f"/machine.slice/machine-libpod_pod_{ID2}.slice/libpod-{ID}.scope")),
    ("/lxc.payload.web/system.slice/x.service", Owner("container", "web", "", "/lxc.payload.web")),
]  # fmt: skip
OTHERS = [
    ("/system.slice/ollama.service", Owner("process", "ollama.service", "", "/system.slice/ollama.service")),
    (f"{USER}/session-3.scope", Owner("process", "user-1000.slice", "", USER)),
    (f"{USER}/user@1000.service/app.slice/jupyter.service", Owner("process", "user-1000.slice", "", USER)),
    ("/machine.slice/libpod-conmon-" + ID + ".scope",
     Owner("process", f"libpod-conmon-{ID}.scope", "", f"/machine.slice/libpod-conmon-{ID}.scope")),
    ("/batch/night", Owner("process", "night", "", "/batch/night")),
    ("/", Owner("process", "", "", "/")),
    ("/system.slice/podcast.service", Owner("process", "podcast.service", "", "/system.slice/podcast.service")),
]  # fmt: skip


@pytest.mark.parametrize(("path", "owner"), PODS + JOBS + CONTAINERS + OTHERS)
def test_version_2(path: str, owner: Owner) -> None:
    assert owner_of(f"0::{path}\n") == owner


@pytest.mark.parametrize(("path", "owner"), PODS + JOBS + CONTAINERS + OTHERS)
def test_version_1_reports_the_same_but_for_the_path(path: str, owner: Owner) -> None:
    text = f"12:pids:{path}\n11:cpu,cpuacct:{path}\n1:name=systemd:{path}\n"
    assert owner_of(text) == owner._replace(path="")


def test_both_versions_at_once_look_wherever_the_unit_is() -> None:
    runtime = "/system.slice/containerd.service"
    assert owner_of(f"4:memory:{CGROUPFS}/{ID}\n1:name=systemd:{runtime}\n0::{runtime}\n") == pod("")
    assert owner_of("3:devices:/slurm/uid_1/job_4/step_0\n0::/system.slice/slurmd.service\n") == Owner(
        "slurm", "4", "0"
    )
    assert owner_of("9:name=systemd:/\n4:memory:/a/b\n0::/\n") == Owner("process", "b")


@pytest.mark.parametrize("text", ["", "\n", "0::", "0::relative", "x::/a", "garbage", "1:2"])
def test_a_text_without_a_group_has_no_owner(text: str) -> None:
    assert owner_of(text) is None


@settings(deadline=None)
@given(st.text() | st.text(st.sampled_from(":/\n0-_.podjbslurm1a")))
def test_no_text_makes_it_fail(text: str) -> None:
    owner_of(text)
    owner_of_path(text)
    inside = owner_of(f"0::/{text}")
    assert inside is None or inside.runtime in ("kubernetes", "slurm", "container", "process")


def test_a_group_is_a_unit_only_at_its_own_path() -> None:
    assert owner_of_path(SYSTEMD) == pod(SYSTEMD, "")
    assert owner_of_path(f"{SLURM}/job_9") == Owner("slurm", "9", "", f"{SLURM}/job_9")
    for path in (f"{SYSTEMD}/cri-containerd-{ID}.scope", f"{SLURM}/job_9/step_0", "/kubepods.slice", SLURM, "/"):
        assert owner_of_path(path) is None
