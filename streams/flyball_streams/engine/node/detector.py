"""The interface of detectors of a node lane, and the data of a tick that they see."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.frame import Frame
from flyball_contracts.ids import record_id
from flyball_contracts.records import Anomaly, Evidence, Inventory, NodeEvent, Proposal, Record, Tick
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.node.slot_model import M, SlotModel
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy

Found: TypeAlias = Record | Proposal


class DeviceEvent(NamedTuple):
    """An event of a node, and the devices that it affects, each with the workload on it, empty for none."""

    event: NodeEvent
    devices: Mapping[str, str]


@dataclass(frozen=True)
class CellTick:
    """One closed tick of a cell in one partition.

    ``events`` are those up to this tick, in order; ``usage`` are the frames with the use of hosts by replicas.
    ``node_rate`` is the budget of false incidents of a node with the mean number of GPUs of the nodes here, per second.
    """

    cell: str
    tick: Tick
    gpus: SubjectTable
    hosts: SubjectTable
    tenancy: Tenancy
    directory: FleetIndex
    inventories: dict[str, Inventory]
    events: list[DeviceEvent]
    usage: list[tuple[Inventory, Frame]]
    node_rate: float

    @cached_property
    def work_of_hosts(self) -> NDArray[np.int32]:
        """A number for the work of each host that was seen in the window, int32[capacity]; -1: none.

        Hosts with the same workloads have the same number.
        """
        work, numbers = np.full(self.hosts.capacity, -1, np.int32), dict[frozenset[str], int]()
        for node, held in self.tenancy.workloads_of_node.items():
            slot = self.hosts.slots.get(node)
            if held and slot is not None and self.hosts.means is not None and self.hosts.means.mask[slot]:
                work[slot] = numbers.setdefault(frozenset(held), len(numbers))
        return work

    def anomaly(
        self,
        table: SubjectTable,
        slot: int,
        detector: str,
        score: float,
        evidence: tuple[Evidence, ...],
        since_ns: int | None = None,
    ) -> Anomaly:
        """Anomaly of the subject in a slot; ``since_ns`` is bounded by the end of the tick."""
        subject, end_ns = table.names[slot], self.tick.end_ns
        return Anomaly(
            id=record_id("Anomaly", self.cell, subject, detector, self.tick.index),
            subject=subject,
            cell=self.cell,
            node=table.owner[slot],
            time_ns=end_ns,
            detector=detector,
            score=score,
            evidence=evidence,
            workload=self.tenancy.replica_of_slot.get(slot, ("", ""))[0] if table is self.gpus else "",
            since_ns=None if since_ns is None else max(0, min(since_ns, end_ns)),
        )


class Detector(SlotModel[M]):
    """A detector: a file of :mod:`~flyball_streams.engine.node.detectors` and a line in ``NodeCell.__init__``."""

    def boot(self, devices: list[str]) -> None:
        """Note devices whose node has booted."""

    def step(self, seen: CellTick) -> Iterator[Found]:
        """Records and proposals of a tick, after its events."""
        raise NotImplementedError
