"""A root folder with processes and control groups, as pods and jobs have them."""

from pathlib import Path

UIDS = ("0a1b2c3d-1111-2222-3333-444455556666", "0a1b2c3d-1111-2222-3333-777788889999")
CONTAINER = 64 * "c"
MOUNT = "sys/fs/cgroup"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class CgroupTree:
    """Processes and groups under ``root``; each file can be written again."""

    def __init__(self, root: Path, *, unified: bool = True) -> None:
        self.root = root
        (root / "proc").mkdir(parents=True, exist_ok=True)
        if unified:
            write(root / MOUNT / "cgroup.controllers", "cpu memory io pids\n")

    def pod_path(self, pod: int) -> str:
        """Control group of a pod of the systemd driver."""
        burstable = "kubepods-burstable"
        return f"/kubepods.slice/{burstable}.slice/{burstable}-pod{UIDS[pod].replace('-', '_')}.slice"

    def pod(self, pod: int, folder: str = "", cpu_s: float = 0) -> Path:
        """Make a pod's group, and the log folder ``namespace_name`` that tells its name."""
        if folder:
            (self.root / "var/log/pods" / f"{folder}_{UIDS[pod]}" / "main").mkdir(parents=True, exist_ok=True)
        return self.group(self.pod_path(pod), cpu_s)

    def group(self, path: str, cpu_s: float = 0, memory: int = 1000) -> Path:
        """Make a control group with what it used."""
        own = self.root / MOUNT / path.lstrip("/")
        write(own / "cpu.stat", f"usage_usec {round(cpu_s * 1e6)}\n")
        write(own / "memory.current", f"{memory}\n")
        return own

    def group_v1(self, path: str, *, shared: bool, cpu_s: float = 0, memory: int = 1000) -> None:
        """Make a group below each controller of version 1; ``shared``: cpu and cpuacct have one folder."""
        cpu, accounts = ("cpu,cpuacct", "cpu,cpuacct") if shared else ("cpu", "cpuacct")
        write(self.root / MOUNT / cpu / path.lstrip("/") / "cpu.cfs_quota_us", "-1\n")
        write(self.root / MOUNT / accounts / path.lstrip("/") / "cpuacct.usage", f"{round(cpu_s * 1e9)}\n")
        write(self.root / MOUNT / "memory" / path.lstrip("/") / "memory.usage_in_bytes", f"{memory}\n")
        write(
            self.root / MOUNT / "memory" / path.lstrip("/") / "memory.stat",
            "inactive_file 5\ntotal_inactive_file 1000\n",
        )

    def remove_v1(self, path: str) -> None:
        """Remove a group below each controller."""
        for controller in (self.root / MOUNT).iterdir():
            if (controller / path.lstrip("/")).is_dir():
                remove(controller / path.lstrip("/"))

    def process_v1(self, pid: int, path: str) -> None:
        """Make a process in a control group of version 1, whose service is another for systemd."""
        self.process(pid, path)
        own = f"11:memory:{path}\n4:cpu,cpuacct:{path}\n1:name=systemd:/system.slice/containerd.service\n0::/\n"
        write(self.root / f"proc/{pid}/cgroup", own)

    def process(self, pid: int, path: str, start: int = 100, command: str = "python3") -> None:
        """Make a process in a control group."""
        fields = " ".join(["S", *["0"] * 18, str(start), "0", "0"])
        write(self.root / f"proc/{pid}/stat", f"{pid} ({command}) {fields}\n")
        write(self.root / f"proc/{pid}/cgroup", f"0::{path}\n")

    def end(self, pid: int) -> None:
        """End a process."""
        remove(self.root / f"proc/{pid}")


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it."""
    for entry in folder.iterdir():
        remove(entry) if entry.is_dir() else entry.unlink()
    folder.rmdir()
