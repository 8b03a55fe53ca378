"""The hardware of a node and its replicas; one compacted record per node."""

from collections.abc import Mapping
from typing import Literal

from flyball_contracts.records.base import Part, Record, TimeNs

CapacityType = Literal["owned", "reserved", "on_demand", "spot"]

AgentState = Literal["running", "stopped", "none"]

CordonState = Literal["", "flyball", "other", "lifted"]


Distance = Literal["internal", "single", "multiple", "hostbridge", "node", "system"]


class Link(Part, frozen=True, kw_only=True):
    """A connection between two devices of the node; ``peer`` is a row index, bandwidth is one way.

    ``distance`` is how far apart they are on PCIe: on one board, one switch, several switches, one host bridge,
    one NUMA node, or across NUMA nodes. ``count`` is the number of NVLinks, where they are known.
    """

    peer: int
    kind: Literal["nvlink", "nvswitch", "pcie"] = "nvlink"
    bandwidth_bytes_per_s: float | None = None
    distance: Distance | None = None
    count: int | None = None


class NumaNode(Part, frozen=True, kw_only=True):
    """A NUMA node of the host; its place in :attr:`Inventory.numa` is its row in the frames."""

    id: int
    cpu_count: int
    memory_bytes: int


class Device(Part, frozen=True, kw_only=True):
    """A GPU or a MIG instance; its place in :attr:`Inventory.devices` is its row in the frames.

    A GPU that is divided has ``mig_enabled``, and work runs on the instances, whose ``parent`` it is.
    ``capabilities`` are what can be measured on it: ``gpm``, ``samples``, ``energy``, ``nvlink``, ``ecc``. It is not
    ``schedulable`` while the platform places nothing new on it, and ``shared`` if the platform says that it gives it to
    several replicas at once, by time-slicing or MPS.
    """

    id: str
    model: str
    memory_bytes: int
    index: int = 0
    parent: str | None = None
    mig_profile: str | None = None
    pci_address: str | None = None
    serial: str | None = None
    numa_node: int | None = None
    power_limit_w: float | None = None
    links: tuple[Link, ...] = ()
    architecture: str = ""
    compute_capability: str = ""
    mig_enabled: bool = False
    capabilities: tuple[str, ...] = ()
    schedulable: bool = True
    shared: bool = False


class Allocation(Part, frozen=True, kw_only=True):
    """One replica of a workload on this node; ``devices`` are row indexes, empty for a share of the host.

    ``runtime`` is the system that runs it; ``labels`` are the names that it has there: namespace, pod and container, or
    job.
    """

    workload: str
    replica: str
    devices: tuple[int, ...] = ()
    runtime: Literal["", "kubernetes", "slurm", "container", "process"] = ""
    labels: Mapping[str, str] = {}

    @property
    def placed(self) -> bool:
        """Whether a platform placed it on its devices: no lone process, and not named by a configuration alone."""
        return self.runtime not in ("", "process")


class Gateway(Part, frozen=True, kw_only=True):
    """A gateway that counts the requests for a workload; its place in :attr:`Inventory.gateways` is its row."""

    workload: str
    name: str


class Inventory(Record, frozen=True, kw_only=True):
    """One node at one moment; ``epoch`` rises with every change and is named in the frames.

    ``cell`` is the cluster or region that decides over the node; ``zone`` is the grid zone of its power,
    ``availability_zone`` the cloud's name of the building. ``rack`` and ``leaf`` (the switch of the network of GPUs
    that it is connected to) are names in the cell, empty if unknown. ``schedulable`` is false while the node is
    drained.

    ``agent`` is ``stopped`` in the last inventory of an agent that stops on purpose: no frames come from the node, and
    nothing is placed on it, until a newer inventory. It is ``none`` where another publisher sends the inventory of a
    node that has had no agent. ``cordon`` says who has cordoned the node, if the platform shows it: Flyball or an
    ``other`` client; with ``lifted``, another client has taken Flyball's cordon away.
    """

    node: str
    cell: str
    epoch: int
    time_ns: TimeNs
    boot_id: str = ""
    devices: tuple[Device, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    provider: str = ""
    region: str = ""
    zone: str = ""
    instance_type: str = ""
    capacity_type: CapacityType = "owned"
    price_usd_per_hour: float | None = None
    cpu_count: int | None = None
    memory_bytes: int | None = None
    driver_version: str = ""
    schedulable: bool = True
    availability_zone: str = ""
    numa: tuple[NumaNode, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    rack: str = ""
    leaf: str = ""
    agent: AgentState = "running"
    cordon: CordonState = ""

    @property
    def holds_work(self) -> bool:
        """Whether replicas hold devices of the node."""
        return any(one.devices for one in self.allocations)
