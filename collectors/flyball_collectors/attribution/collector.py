"""Reports at each tick who uses this node and how much, and how the devices are divided among them."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.attribution.gpus import Gpus, IdlePower, devices_of
from flyball_collectors.attribution.naming import Named, PodNames, name_of
from flyball_collectors.attribution.owner import Owner
from flyball_collectors.attribution.processes import ProcessOwners
from flyball_collectors.attribution.shares import Shares, Uses, divide
from flyball_collectors.attribution.units import Key, Unit, Units, key_of
from flyball_collectors.attribution.usage import UsageMeter
from flyball_collectors.attribution.users import JobUsers
from flyball_collectors.base import Collector, KeyedReading, Parts, Reading
from flyball_collectors.host.cgroup_v1 import hierarchy_of
from flyball_collectors.nvml.readings.processes import Process
from flyball_collectors.parameters import AttributionParameters
from flyball_contracts.config.attribution import AttributionConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU_SHARE, USAGE
from flyball_contracts.records import Allocation, Device

_LOG = logging.getLogger(__name__)


class AttributionCollector(Collector):
    """Allocations, their usage, and the shares of the devices.

    It is read after its attached collectors in each tick.
    """

    name = "attribution"

    def __init__(self, section: AttributionConfig, node: str, root: Path = Path("/")) -> None:
        settings = self._settings = with_constants(AttributionParameters, section)
        self._node = node
        self._gpus: Gpus | None = None
        self._others: tuple[Collector, ...] = ()
        found = hierarchy_of(root)
        if found is None:
            _LOG.info("this host's control groups are not to be seen: what workloads use of it is not reported")
        self._owners = ProcessOwners(root, legacy=found is not None and found.legacy)
        self._units = Units(found.groups if found else None, settings.groups, without_devices=settings.without_devices)
        self._pods = PodNames(root / settings.pod_logs.lstrip("/"))
        self._users = JobUsers(root)
        self._idle = IdlePower()
        self._meter = UsageMeter(root)
        self._reads = 0
        self._since_usage_ns = 0
        self._facts: object = None
        self._names: dict[Key, Named] = {}
        self._allocations: tuple[Allocation, ...] = ()

    def attach(self, gpus: Gpus | None, others: Iterable[Collector] = ()) -> None:
        """Use the devices' values of ``gpus``, and the names of pods from ``others``.

        An allocation of the others with the label ``uid`` names the pod with that UID, one with the label ``job`` names
        that job. A named pod or job is reported whether or not it uses a device. Of several allocations in one job, the
        first has the job's devices.
        """
        self._gpus, self._others = gpus, tuple(others)

    def read(self, now_ns: int, period_ns: int) -> Sequence[Reading | KeyedReading]:
        """A ``GPU_SHARE`` row for each device, and periodically a ``USAGE`` row for each unit."""
        latest = self._gpus.latest if self._gpus else None
        devices = self._gpus.parts().devices if self._gpus else ()
        rows = {device.id: row for row, device in enumerate(devices)}
        processes = [p for p in (self._gpus.processes() if self._gpus and latest else ()) if p.device in rows]
        owners = self._owners.find(process.pid for process in processes)
        users: dict[Owner, set[str]] = {}
        for process in processes:
            if process.pid in owners:
                users.setdefault(owners[process.pid], set()).add(process.device)
        declared = _declared([a for other in self._others for a in other.parts().allocations])
        units = self._units.update(users, declared)
        self._name(units, rows, declared)
        readings: list[Reading | KeyedReading] = []
        shares = None
        if latest is not None and len(latest.values) == len(devices):
            place = {key: index for index, key in enumerate(units)}
            owner_of = {pid: place[key_of(owner)] for pid, owner in owners.items()}
            values = latest.values.astype(np.float64)
            shares = self._divide(devices, values, _uses(processes, rows, owner_of), len(units), period_ns / NS_PER_S)
            parts = np.concatenate([shares.sm_s, shares.energy_j, shares.memory], axis=1)
            readings.append(Reading(GPU_SHARE.schema, parts.astype(np.float32)))
        self._meter.add(units, shares)
        if self._usage_is_due(period_ns):
            usage = {self._names[key][:2]: row for key, row in self._meter.take(units).items()}
            readings += [KeyedReading(USAGE.schema, usage)] if usage else []
        return readings

    def parts(self) -> Parts:
        """An allocation for each unit of the last read."""
        return Parts(allocations=self._allocations)

    def _usage_is_due(self, period_ns: int) -> bool:
        """Whether usage is due; the second read always is, so that increases are known soon."""
        self._reads += 1
        self._since_usage_ns += period_ns
        due = self._reads <= 2 or 2 * self._since_usage_ns > 2 * self._settings.usage_period_s * NS_PER_S - period_ns
        if due:
            self._since_usage_ns = 0
        return due

    def _name(self, units: Mapping[Key, Unit], rows: Mapping[str, int], declared: Mapping[Key, Allocation]) -> None:
        """Name the units uniquely, unless nothing has changed since the last time."""
        pods = self._pods.find(unit for runtime, unit in units if runtime == "kubernetes")
        jobs = {key[1]: unit.folder for key, unit in units.items() if key[0] == "slurm" and unit.folder is not None}
        job_users = self._users.find(jobs)
        facts = (dict(units), dict(rows), declared, dict(pods), job_users)
        if facts == self._facts:
            return
        self._facts = facts
        self._names = {}
        taken: set[tuple[str, str]] = set()
        for key in sorted(units):
            user = job_users.get(key[1], "") if key[0] == "slurm" else ""
            named = name_of(units[key].owner, self._node, pods.get(key[1]), self._settings.rules, user)
            if key in declared:
                named = named._replace(workload=declared[key].workload, replica=declared[key].replica)
            if named[:2] in taken:  # two pods of one name: the one is about to end, or a rule joins namespaces
                named = named._replace(replica=f"{named.replica}.{key[1]}")
            taken.add(named[:2])
            self._names[key] = named
        self._allocations = tuple(_allocation(unit, self._names[key], rows) for key, unit in units.items())

    def _divide(
        self, devices: Sequence[Device], values: NDArray[np.float64], uses: Uses, owners: int, period_s: float
    ) -> Shares:
        found = devices_of(devices, values, self._idle.of(devices), period_s)
        if self._reads == 0:  # the period began before the agent did
            found = found._replace(busy_s=np.full(len(devices), np.nan))
            uses = uses._replace(sm_share=np.full(len(uses.device), np.nan))
        shares = divide(found, uses, owners, period_s)
        self._idle.update(devices, found.energy_j, shares, period_s)
        return shares


def _declared(allocations: Iterable[Allocation]) -> dict[Key, Allocation]:
    """Allocations by their pod or job."""
    declared: dict[Key, Allocation] = {}
    for one in sorted(allocations, key=lambda a: (a.workload, a.replica)):
        if "uid" in one.labels:
            declared.setdefault(("kubernetes", one.labels["uid"]), one)
        elif "job" in one.labels:
            declared.setdefault(("slurm", one.labels["job"]), one)
    return declared


def _allocation(unit: Unit, named: Named, rows: Mapping[str, int]) -> Allocation:
    devices = tuple(sorted(rows[device] for device in unit.devices if device in rows))
    return Allocation(
        workload=named.workload,
        replica=named.replica,
        devices=devices,
        runtime=unit.owner.runtime,
        labels=named.labels,
    )


def _uses(processes: Iterable[Process], rows: Mapping[str, int], owner_of: Mapping[int, int]) -> Uses:
    table = [(rows[p.device], owner_of.get(p.pid, -1), p.sm_share, p.memory_bytes) for p in processes]
    device, owner, share, memory = zip(*table, strict=True) if table else ((), (), (), ())
    return Uses(
        np.array(device, np.int64),
        np.array(owner, np.int64),
        np.array(share, np.float64),
        np.array(memory, np.float64),
    )
