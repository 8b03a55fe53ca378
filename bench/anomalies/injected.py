"""Faults of ten causes, as telemetry and events show them: where each is, and what it does to the work there.

GPUs that fail, straggle or lose a link, racks and leaf switches are the simulator's own faults. The others are put into
what its agents send: the place itself shows it, and a gang that waits for the place takes longer steps, its other
members spin at less power, as the simulator has it for a slow GPU. The severity of each is drawn, down to negligible
ones: a tenth of the time in waits, an error in half a minute, 5 K, 3 % of the clock.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import FailingGpu, FailingLink, LeafFault, RackFault, StragglingGpu
from flyball_contracts.metrics import GPU, HOST, USAGE, WORKLOAD
from flyball_contracts.records import Inventory, NodeEvent
from flyball_contracts.records.events import node_event
from flyball_simulator import Fleet

Floats = NDArray[np.float32]
Frames = dict[tuple[str, int], Floats]
"""Values of the frames of a tick by node and layout; what is written there is what arrives, what is added, too."""
Change = Callable[[Frames, float, np.random.Generator], None]
"""Changes the frames of a tick, given the seconds since the fault began."""
USE = GPU.column("hw.gpu.utilization{task=general}")
WORK = [
    GPU.column(key)
    for key in (
        "nvidia.gpu.sm.activity", "nvidia.gpu.tensor.activity", "nvidia.gpu.dram.bandwidth.utilization",
        "hw.gpu.io{direction=receive}", "hw.gpu.io{direction=transmit}", "nvidia.gpu.nvlink.io{direction=receive}",
        "nvidia.gpu.nvlink.io{direction=transmit}",
    )
]  # fmt: skip
POWER, LIMIT = GPU.column("hw.power"), GPU.column("nvidia.gpu.power.limit{type=enforced}")
MEMORY = GPU.column("hw.gpu.memory.utilization")
MEMORY_BYTES, MEMORY_LIMIT = GPU.column("hw.gpu.memory.usage"), GPU.column("hw.gpu.memory.limit")
CLOCK, TEMPERATURE = GPU.column("nvidia.gpu.clock.frequency{clock=sm}"), GPU.column("hw.temperature{sensor=gpu}")
REPLAYS = GPU.column("nvidia.gpu.pcie.replays")
PCIE = [GPU.column(f"hw.gpu.io{{direction={way}}}") for way in ("receive", "transmit")]
STEP = WORKLOAD.column("flyball.workload.step.time")
CPU, IOWAIT = HOST.column("system.cpu.utilization"), HOST.column("system.cpu.time{mode=iowait}")
WAITS = {kind: HOST.column(f"system.linux.psi.total_time{{resource={kind},stall=some}}") for kind in ("cpu", "io")}
DISK = [HOST.column(f"system.disk.io{{direction={way}}}") for way in ("read", "write")]
BYTES = [HOST.column(f"system.network.io{{direction={way}}}") for way in ("receive", "transmit")]
ERRORS = [HOST.column(f"system.network.errors{{direction={way}}}") for way in ("receive", "transmit")]
USED = USAGE.column("container.cpu.time")
IDLE_W, CPUS = 70.0, 128.0
TRAINING = ("llm-pretrain", "vision-train", "rank-train")
JOBS = (*TRAINING, "synth-data", "protein-fold", "asr-batch")


class Story(NamedTuple):
    """One fault: what it is, where (a GPU, or what ``place`` names), and of which gang it strikes one rank.

    ``simulated`` are the keys of the fleet's configuration that describe it, ``change`` alters frames, and ``events``
    are told besides.
    """

    cause: str
    kind: str
    place: str
    rank_of: str = ""
    simulated: Mapping[str, Any] = {}
    change: Change | None = None
    events: tuple[NodeEvent, ...] = ()


class Site:
    """Who holds what in a fleet as it is when the fault begins."""

    def __init__(self, fleet: Fleet, begin_s: float, period_s: float, random: np.random.Generator) -> None:
        self.nodes: dict[str, Inventory] = {n.node: n for n in fleet.nodes}
        self.start_ns, self.begin_s, self.period_s, self.random = fleet.start_ns, begin_s, period_s, random

    def held(self, workloads: tuple[str, ...]) -> tuple[Inventory, int, str, int]:
        """A node, a row of it, who holds that, and the number of the replica whose first GPU it is."""
        found = [
            (node, a.devices[0], a.workload, int(a.replica.rpartition("-")[2]))
            for node in self.nodes.values()
            for a in node.allocations
            if a.workload in workloads
        ]
        of = sorted({workload for _, _, workload, _ in found})
        chosen = of[int(self.random.integers(len(of)))]
        mine = [one for one in found if one[2] == chosen]
        return mine[int(self.random.integers(len(mine)))]

    def event(self, node: str, kind: Any, device: str = "", **more: Any) -> NodeEvent:
        """What an agent tells when the fault begins."""
        return node_event(node, self.start_ns + round(self.begin_s * 1e9), kind, device=device, **more)

    def slowed(self, workload: str, factor: float, but: tuple[str, int] | None = None) -> Change:
        """All of a gang take ``factor`` times as long for a step; they wait for one, whose own GPU works on."""
        rows = [
            (node.node, i, [d for d in a.devices if (node.node, d) != but])
            for node in self.nodes.values()
            for i, a in enumerate(node.allocations)
            if a.workload == workload
        ]

        def change(frames: Frames, since_s: float, random: np.random.Generator) -> None:
            del since_s, random
            for name, allocation, devices in rows:
                page, gpus = frames.get((name, WORKLOAD.schema)), frames.get((name, GPU.schema))
                if page is not None and allocation < len(page):
                    page[allocation, STEP] *= factor
                if gpus is not None:
                    gpus[devices, USE] *= 0.55 + 0.45 / factor
                    gpus[np.ix_(devices, WORK)] /= factor
                    gpus[devices, POWER] = IDLE_W + (gpus[devices, POWER] - IDLE_W) / factor

        return change


def both(*changes: Change) -> Change:
    """One change after the other."""

    def change(frames: Frames, since_s: float, random: np.random.Generator) -> None:
        for one in changes:
            one(frames, since_s, random)

    return change


def _on(node: str, schema: int, write: Callable[[Floats, float, np.random.Generator], None]) -> Change:
    def change(frames: Frames, since_s: float, random: np.random.Generator) -> None:
        values = frames.get((node, schema))
        if values is not None:
            write(values, since_s, random)

    return change


def _gpu(site: Site) -> Iterator[Story]:
    node, row, workload, number = site.held(JOBS)
    device, gang = node.devices[row].id, workload if workload in TRAINING else ""
    dies_s, begin = float(site.random.uniform(10.0, 120.0)), site.begin_s
    code = int(site.random.choice([48, 62, 64, 95, 119, 120, 140, 143]))
    fails = FailingGpu(workload=workload, replica=number, from_s=begin, dies_after_s=dies_s, xid=code)
    yield Story("gpu", "errors, then an XID", device, gang, {"failing": (fails,)})
    errs = FailingGpu(workload=workload, replica=number, from_s=begin, dies_after_s=1e9)
    yield Story("gpu", "corrected errors", device, gang, {"failing": (errs,)})


def _gpu_memory(site: Site) -> Iterator[Story]:
    node, row, workload, _ = site.held(JOBS)
    full_s, shown = float(site.random.uniform(700.0, 1500.0)), float(site.random.uniform(0.3, 0.6))

    def write(values: Floats, since_s: float, random: np.random.Generator) -> None:
        del random
        values[row, MEMORY] = min(1.0, shown * values[row, MEMORY] + (1.0 - shown) * since_s / full_s)
        values[row, MEMORY_BYTES] = values[row, MEMORY] * values[row, MEMORY_LIMIT]

    gang = workload if workload in TRAINING else ""
    yield Story("gpu_memory", "a leak", node.devices[row].id, gang, change=_on(node.node, GPU.schema, write))


def _thermal(site: Site) -> Iterator[Story]:
    node, row, workload, number = site.held(JOBS)
    device, gang = node.devices[row].id, workload if workload in TRAINING else ""
    ratio = float(site.random.uniform(0.5, 0.97))
    slow = StragglingGpu(workload=workload, replica=number, from_s=site.begin_s, clock_ratio=ratio)
    yield Story("thermal", "throttled", device, gang, {"straggling": (slow,)})
    warmer = float(site.random.uniform(5.0, 30.0))

    def write(values: Floats, since_s: float, random: np.random.Generator) -> None:
        del random
        values[row, TEMPERATURE] += round(warmer * -float(np.expm1(-since_s / 60.0)))

    yield Story("thermal", "warmer than its peers", device, gang, change=_on(node.node, GPU.schema, write))


def _power(site: Site) -> Iterator[Story]:
    racks = sorted({n.rack for n in site.nodes.values() if n.allocations})
    rack = racks[int(site.random.integers(len(racks)))]
    dark = None if site.random.random() < 0.5 else float(site.random.uniform(30.0, 200.0))
    fault = RackFault(rack=rack, from_s=site.begin_s, dark_after_s=dark, lasts_s=1e6)
    yield Story("power", "a rack's feed", rack, "", {"rack_faults": (fault,)})
    node, _, workload, _ = site.held(TRAINING)

    def write(values: Floats, since_s: float, random: np.random.Generator) -> None:
        del since_s, random
        values[:, CLOCK] *= 0.5
        values[:, POWER] = IDLE_W + (values[:, POWER] - IDLE_W) * 0.4

    words = "clocks are lowered by the power brake of the host"
    events = tuple(
        site.event(node.node, "power_brake", d.id, severity="warning", remedy="notify", message=words)
        for d in node.devices
    )
    change = both(_on(node.node, GPU.schema, write), site.slowed(workload, 2.0))
    yield Story("power", "a node's brake", node.node, workload, change=change, events=events)


def _pcie(site: Site) -> Iterator[Story]:
    node, row, workload, number = site.held(JOBS)
    device, gang = node.devices[row].id, workload if workload in TRAINING else ""
    fault = FailingLink(workload=workload, replica=number, from_s=site.begin_s, lasts_s=1e6)
    yield Story("pcie", "its link fails", device, gang, {"links": (fault,)})
    gone = FailingGpu(workload=workload, replica=number, from_s=site.begin_s, dies_after_s=0.0, xid=79)
    yield Story("pcie", "off the bus", device, gang, {"failing": (gone,)})
    replays, narrow = float(site.random.uniform(0.05, 8.0)), float(site.random.choice([2.0, 4.0]))

    def write(values: Floats, since_s: float, random: np.random.Generator) -> None:
        del since_s
        values[row, REPLAYS] = random.poisson(replays * site.period_s)
        values[row, PCIE] /= narrow

    yield Story("pcie", "replays, narrower", device, gang, change=_on(node.node, GPU.schema, write))


def _nvlink(site: Site) -> Iterator[Story]:
    node, row, workload, number = site.held(JOBS)
    link = int(site.random.integers(18))
    fault = FailingLink(workload=workload, replica=number, from_s=site.begin_s, link=link, lasts_s=1e6)
    gang = workload if workload in TRAINING else ""
    yield Story("nvlink", "its link fails", node.devices[row].id, gang, {"links": (fault,)})


def _network(site: Site) -> Iterator[Story]:
    leaves = sorted({n.leaf for n in site.nodes.values() if n.allocations})
    leaf = leaves[int(site.random.integers(len(leaves)))]
    fault = LeafFault(leaf=leaf, from_s=site.begin_s, lasts_s=1e6)
    yield Story("network", "a leaf switch", leaf, "", {"leaf_faults": (fault,)})
    node, _, workload, _ = site.held(TRAINING)
    factor, errors = float(site.random.uniform(1.05, 3.0)), float(10.0 ** site.random.uniform(-1.5, 2.5))

    def write(values: Floats, since_s: float, random: np.random.Generator) -> None:
        del since_s
        values[0, ERRORS] = random.poisson(errors * site.period_s, len(ERRORS))
        values[0, BYTES] /= factor

    change = both(_on(node.node, HOST.schema, write), site.slowed(workload, factor))
    yield Story("network", "errors of a node's port", node.node, workload, change=change)


def _storage(site: Site) -> Iterator[Story]:
    node, _, workload, _ = site.held(TRAINING)
    waits, factor = float(site.random.uniform(0.1, 0.9)), float(site.random.uniform(1.05, 2.0))

    def write(values: Floats, since_s: float, random: np.random.Generator) -> None:
        del since_s
        noise = float(random.uniform(0.9, 1.1))
        values[0, WAITS["io"]] = min(1.0, waits * noise) * site.period_s
        values[0, IOWAIT] += 0.2 * waits * values[0, HOST.column("system.cpu.time{mode=idle}")]
        values[0, DISK] /= factor

    change = both(_on(node.node, HOST.schema, write), site.slowed(workload, factor))
    yield Story("storage", "a node waits for disks", node.node, workload, change=change)


def _host(site: Site) -> Iterator[Story]:
    node, _, workload, _ = site.held(TRAINING)
    waits, factor = float(site.random.uniform(0.1, 0.9)), float(site.random.uniform(1.05, 2.0))

    def write(values: Floats, since_s: float, random: np.random.Generator) -> None:
        del since_s
        values[0, WAITS["cpu"]] = min(1.0, waits * float(random.uniform(0.9, 1.1))) * site.period_s
        values[0, CPU] = float(random.uniform(0.93, 1.0))

    change = both(_on(node.node, HOST.schema, write), site.slowed(workload, factor))
    yield Story("host", "too little CPU", node.node, workload, change=change)


def _neighbour(site: Site) -> Iterator[Story]:
    shared = [node for node in site.nodes.values() if _smaller(node)]
    node = shared[int(site.random.integers(len(shared)))]
    small = _smaller(node)
    loud = small[int(site.random.integers(len(small)))]
    waits, factor = float(site.random.uniform(0.1, 0.9)), float(site.random.uniform(1.05, 2.0))
    victims = [d for a in node.allocations if a.workload != loud for d in a.devices]
    is_loud = np.array([a.workload == loud for a in node.allocations])

    def change(frames: Frames, since_s: float, random: np.random.Generator) -> None:
        del since_s
        host, gpus = frames.get((node.node, HOST.schema)), frames.get((node.node, GPU.schema))
        if host is None or gpus is None:
            return
        host[0, WAITS["cpu"]] = min(1.0, waits * float(random.uniform(0.9, 1.1))) * site.period_s
        host[0, CPU] = float(random.uniform(0.93, 1.0))
        gpus[victims, USE] /= factor
        gpus[np.ix_(victims, WORK)] /= factor
        gpus[victims, POWER] = IDLE_W + (gpus[victims, POWER] - IDLE_W) / factor
        used = np.full((len(is_loud), len(USAGE)), np.nan, np.float32)
        used[:, USED] = np.where(is_loud, 0.8 * CPUS / is_loud.sum(), 4.0) * site.period_s
        frames[node.node, USAGE.schema] = used

    yield Story("neighbour", "another tenant takes the CPU", node.node, change=change)


def _smaller(node: Inventory) -> list[str]:
    """Workloads of a node that hold less than half of its GPUs in use, where there are others."""
    held: dict[str, int] = {}
    for a in node.allocations:
        held[a.workload] = held.get(a.workload, 0) + len(a.devices)
    return sorted(name for name, count in held.items() if 2 * count < sum(held.values()))


CAUSES: dict[str, Callable[[Site], Iterator[Story]]] = {
    "gpu": _gpu, "gpu_memory": _gpu_memory, "thermal": _thermal, "power": _power, "pcie": _pcie, "nvlink": _nvlink,
    "network": _network, "storage": _storage, "host": _host, "neighbour": _neighbour,
}  # fmt: skip
