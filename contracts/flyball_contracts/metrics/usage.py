"""Use of the host and the devices by each replica; reported less often than the devices themselves."""

from flyball_contracts.metrics.base import Layout, count, gauge

USAGE = Layout(
    6,
    "usage",
    "allocation",
    (
        count("container.cpu.time", "s", "CPU time"),
        count("container.cpu.throttled.time", "s", "time held back by its CPU limit"),
        gauge("container.cpu.limit", "{cpu}", "CPU limit"),
        gauge("container.memory.usage", "By", "memory charged, page cache too"),
        gauge("container.memory.working_set", "By", "memory that cannot be reclaimed at once"),
        gauge("container.memory.limit", "By", "memory limit"),
        count("container.memory.oom", "{event}", "kills for want of memory"),
        count("container.linux.psi.total_time", "s", "some task waited", resource="cpu", stall="some"),
        count("container.linux.psi.total_time", "s", "some task waited", resource="memory", stall="some"),
        count("container.linux.psi.total_time", "s", "some task waited", resource="io", stall="some"),
        count("container.disk.io", "By", "bytes read", direction="read"),
        count("container.disk.io", "By", "bytes written", direction="write"),
        gauge("container.thread.count", "{thread}", "threads, as the limit of processes counts them"),
        count("nvidia.gpu.workload.sm.time", "s", "SM time, all its devices; on a MIG instance by its slices"),
        count("nvidia.gpu.workload.energy", "J", "energy that its SM time stands for"),
        gauge("nvidia.gpu.workload.memory.usage", "By", "memory on all its devices"),
        gauge("nvidia.gpu.workload.process.count", "{process}", "processes on its devices"),
    ),
)
