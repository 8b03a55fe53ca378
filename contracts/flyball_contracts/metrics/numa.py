"""Memory and CPUs of each NUMA node."""

from flyball_contracts.metrics.base import Layout, count, gauge

NUMA = Layout(
    5,
    "numa",
    "numa",
    (
        gauge("system.memory.limit", "By", "memory of the NUMA node"),
        gauge("system.memory.usage", "By", "memory in use", state="used"),
        gauge("system.memory.usage", "By", "memory free", state="free"),
        gauge("system.cpu.utilization", "1", "busy share of the node's CPUs"),
        gauge("system.cpu.logical.count", "{cpu}", "logical CPUs"),
        count("system.linux.numa.pages", "{page}", "allocated here as intended", state="hit"),
        count("system.linux.numa.pages", "{page}", "allocated here though another node was meant", state="miss"),
        count("system.linux.numa.pages", "{page}", "meant for here and allocated elsewhere", state="foreign"),
    ),
)
