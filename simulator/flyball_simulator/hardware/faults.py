"""GPUs that fail or straggle: the effect on the GPU, and the events it causes.

A fault belongs to the GPU, not to the replica: a replica that moves leaves it behind.
"""

import math
from typing import NamedTuple

from numpy.random import Generator

from flyball_contracts.config import FailingGpu, FailingLink, FleetConfig, StragglingGpu
from flyball_contracts.errors import ConfigError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import EventKind, Remedy, Severity, node_event
from flyball_contracts.xids import xid_of
from flyball_simulator.cell.placement import Placement
from flyball_simulator.hardware.links import PACE, LinkFault
from flyball_simulator.hardware.site import Site
from flyball_simulator.loads import Moment

SLOWING_S = 5.0
"""Time constant with which a straggler's clock drops."""
OFF_THE_BUS = 79
HIGH_ERROR_RATE = 92
DRAIN_AND_RESET = 4


class FaultyGpu(NamedTuple):
    """One faulty GPU in one tick: ``pace`` is the share of its clock that is left, 0 when it is dead.

    ``corrected`` and ``uncorrected`` count this tick's ECC errors; ``lost``: the driver reads nothing from it.
    ``link_pace`` is the pace of work that its links allow; their errors of this tick are counted by kind. ``braked``:
    its rack has too little power; ``off``: its node has none; ``cut``: its node is unreachable, and runs on.
    """

    row: int
    pace: float
    hot: bool = False
    corrected: int = 0
    uncorrected: int = 0
    dead: bool = False
    lost: bool = False
    link_pace: float = 1.0
    nvlink_errors: int = 0
    pcie_errors: int = 0
    braked: bool = False
    off: bool = False
    cut: bool = False

    @property
    def description(self) -> str:
        """Text on the fault."""
        if self.cut:
            return "cannot be reached"
        if self.off:
            return "has no power"
        if self.dead:
            return "runs nothing"
        if self.corrected or self.uncorrected:
            return "has errors of its memory"
        if self.link_pace < 1.0 or self.nvlink_errors or self.pcie_errors:
            return "has errors of a link"
        return f"runs at {self.pace:.0%} of its clock"


class Faults:
    """The configured faults, assigned to GPUs by the initial placement of their replicas.

    Raises :class:`ConfigError` if a fault names a workload or replica that does not run at the start.
    """

    def __init__(self, config: FleetConfig, site: Site, placement: Placement, start_ns: int) -> None:
        self._site, self._start_ns = site, start_ns
        names = [w.name for w in placement.workloads]

        def row(where: str, fault: FailingGpu | FailingLink | StragglingGpu) -> int:
            if fault.workload not in names:
                raise ConfigError(f"{where}.workload: {fault.workload!r} is not one of: {', '.join(names)}")
            placed = placement.placed[names.index(fault.workload)]
            found = next((r for r in placed if r.number == fault.replica), None)
            if found is None:
                raise ConfigError(f"{where}.replica: {fault.workload} starts with replicas 0 to {len(placed) - 1}")
            return found.rows[0]

        self.failing = [(row(f"failing[{i}]", f), f) for i, f in enumerate(config.failing)]
        self.straggling = [(row(f"straggling[{i}]", f), f) for i, f in enumerate(config.straggling)]
        self.links = [LinkFault(row(f"links[{i}]", f), f) for i, f in enumerate(config.links)]

    def faulty(self, moment: Moment, random: Generator) -> list[FaultyGpu]:
        """The faulty GPUs of a tick."""
        found: list[FaultyGpu] = []
        for row, fault in self.failing:
            age = moment.t_s - fault.from_s
            dies = fault.from_s + fault.dies_after_s
            if age < 0 or _of_the_program(fault):
                continue
            if moment.t_s < dies:
                found.append(
                    FaultyGpu(row, 1.0, corrected=int(random.poisson(4.0 * (1.0 + age) * min(moment.dt_s, 10.0))))
                )
            else:
                # The errors of the tick in which it dies; a dead GPU runs nothing that could err again.
                errors = 2 if moment.t_s - moment.dt_s < dies else 0
                lost = fault.xid == OFF_THE_BUS
                found.append(FaultyGpu(row, 0.0, uncorrected=errors, dead=True, lost=lost))
        for row, slow in self.straggling:
            age = moment.t_s - slow.from_s
            if 0 < age <= slow.lasts_s:
                pace = 1.0 - (1.0 - slow.clock_ratio) * -math.expm1(-age / SLOWING_S)
                found.append(FaultyGpu(row, pace, hot=True))
        for link in self.links:
            if link.is_on(moment):
                new = link.errors_in(moment, random)
                of_nvlink = link.fault.link is not None
                found.append(
                    FaultyGpu(
                        link.row,
                        1.0,
                        link_pace=PACE,
                        nvlink_errors=new if of_nvlink else 0,
                        pcie_errors=0 if of_nvlink else new,
                    )
                )
        return found

    def events(self, moment: Moment) -> list[NodeEvent]:
        """The events of a tick."""
        found: list[NodeEvent] = []
        for row, fault in self.failing:
            if moment.within(fault.from_s) and not _of_the_program(fault):
                text = "high rate of corrected ECC errors"
                found.append(self._event("xid", row, fault.from_s, "warning", "notify", text, HIGH_ERROR_RATE))
            dies, known = fault.from_s + fault.dies_after_s, xid_of(fault.xid)
            if moment.within(dies):
                found.append(self._event("xid", row, dies, known.severity, known.remedy, known.about, fault.xid))
        for row, slow in self.straggling:
            if moment.within(slow.from_s):
                found.append(self._event("throttle", row, slow.from_s, "warning", "none", "clocks lowered by heat"))
        for link in self.links:
            node = self._site.nodes[int(self._site.node_of[link.row])]
            found += link.events(moment, node.name, node.devices[link.row - node.first].id, self._start_ns)
        return found

    def _event(
        self,
        kind: EventKind,
        row: int,
        t_s: float,
        severity: Severity,
        remedy: Remedy,
        message: str,
        code: int | None = None,
    ) -> NodeEvent:
        node = self._site.nodes[int(self._site.node_of[row])]
        time_ns = self._start_ns + round(t_s * NS_PER_S)
        device = node.devices[row - node.first].id
        return node_event(
            node.name, time_ns, kind, severity=severity, device=device, code=code, remedy=remedy, message=message
        )


def _of_the_program(fault: FailingGpu) -> bool:
    """Whether the program failed and the GPU is healthy."""
    return xid_of(fault.xid).fault == "application"
