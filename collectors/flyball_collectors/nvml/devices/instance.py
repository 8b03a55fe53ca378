"""MIG instances of a GPU."""

from collections import Counter
from collections.abc import Iterator
from ctypes import byref, c_uint, c_void_p
from typing import NamedTuple

from flyball_collectors.base import NAN
from flyball_collectors.nvml.calls.abi import Attributes
from flyball_collectors.nvml.calls.gate import Gate
from flyball_collectors.nvml.devices.identity import memory_of
from flyball_collectors.nvml.readings import current, detail
from flyball_collectors.nvml.readings.gpm import Activity, Gpm
from flyball_collectors.nvml.readings.processes import Process, ProcessReader
from flyball_contracts.metrics import GPU, GPU_DETAIL
from flyball_contracts.records import Device

_USED_SLICES = GPU_DETAIL.column("nvidia.gpu.mig.slices{state=used}")


class Place(NamedTuple):
    """A MIG instance in NVML's terms: compute instance ``compute`` in GPU instance ``gpu``."""

    handle: c_void_p
    uuid: str
    gpu: int
    compute: int


def mig_mode(gate: Gate) -> bool:
    """Whether MIG is enabled on a GPU now."""
    now, next_ = c_uint(), c_uint()
    return gate.call("nvmlDeviceGetMigMode", byref(now), byref(next_)) and bool(now.value)


def places(gate: Gate) -> Iterator[Place]:
    """Instances of a divided GPU."""
    for index in range(gate.number("nvmlDeviceGetMaxMigDeviceCount") or 0):
        handle = c_void_p()
        if not gate.call("nvmlDeviceGetMigDeviceHandleByIndex", index, byref(handle)):
            continue
        own = Gate(gate.library, handle)
        ids = own.number("nvmlDeviceGetGpuInstanceId"), own.number("nvmlDeviceGetComputeInstanceId")
        uuid = own.text("nvmlDeviceGetUUID")
        if uuid and ids[0] is not None and ids[1] is not None:
            yield Place(handle, uuid, ids[0], ids[1])


class Instance:
    """Reads one MIG instance: memory, processes and, if the chip supports it, activity.

    The activity is that of the GPU instance, so it is read only if the compute instance is its only one.
    """

    def __init__(self, gate: Gate, place: Place, parent: Device, *, alone: bool) -> None:
        self.place = place
        self.alone = alone
        self.activity: Activity = {}
        self.processes: list[Process] = []
        own = Gate(gate.library, place.handle)
        self._memory = current.MemoryReader(own)
        self._processes = ProcessReader(own, place.uuid)
        self._gpm = Gpm(gate, place.gpu) if alone else None
        attributes = Attributes()
        known = own.call("nvmlDeviceGetAttributes_v2", byref(attributes))
        self.slices = int(attributes.gpu_slices) if known else None
        memory_bytes = memory_of(own)[0] or int(attributes.memory_mib) << 20
        self.device = Device(
            id=place.uuid,
            model=own.text("nvmlDeviceGetName") or parent.model,
            memory_bytes=memory_bytes,
            index=parent.index,
            parent=parent.id,
            mig_profile=_profile(attributes, parent.memory_bytes) if known else None,
            pci_address=parent.pci_address,
            numa_node=parent.numa_node,
            architecture=parent.architecture,
            compute_capability=parent.compute_capability,
            capabilities=("gpm",) if self._gpm is not None and self._gpm.supported else (),
        )

    def read(self, *, detail: bool) -> list[float]:
        """Row of the ``GPU`` layout."""
        row = [NAN] * len(GPU)
        self._memory.read(row)
        self.activity = {} if self._gpm is None else self._gpm.read()
        current.put_activity(row, self.activity)
        self.processes = self._processes.read(NAN, detail=detail)
        current.put_count(row, self._processes.running)
        return row

    def read_detail(self) -> list[float]:
        """Row of the ``GPU_DETAIL`` layout."""
        row = [NAN] * len(GPU_DETAIL)
        detail.put_activity(row, self.activity)
        if self.slices is not None:
            row[_USED_SLICES] = self.slices
        return row

    def close(self) -> None:
        """Release all resources."""
        if self._gpm is not None:
            self._gpm.close()


def open_instances(gate: Gate, parent: Device, old: list[Instance]) -> list[Instance]:
    """Readers of a GPU's current instances; readers of remaining instances are kept, the others closed."""
    found = list(places(gate)) if parent.mig_enabled else []
    sharing = Counter(place.gpu for place in found)
    known = {(one.place.uuid, one.place.gpu, one.place.compute, one.alone): one for one in old}
    kept: list[Instance] = []
    for place in found:
        alone = sharing[place.gpu] == 1
        one = known.pop((place.uuid, place.gpu, place.compute, alone), None)
        kept.append(one or Instance(gate, place, parent, alone=alone))
    for gone in known.values():
        gone.close()
    return kept


def _profile(attributes: Attributes, parent_bytes: int) -> str:
    """Name of a profile, ``1c.3g.40gb`` or ``3g.40gb`` if the compute instance has all of the GPU instance.

    A profile is named after its share of the memory in eighths, of the nominal board size.
    """
    eighths = -(-attributes.memory_mib * 8 * 2**20 // parent_bytes) if parent_bytes else 0
    memory_gb = round(eighths / 8 * -(-parent_bytes // 2**30))
    compute = f"{attributes.compute_slices}c." if attributes.compute_slices != attributes.gpu_slices else ""
    return f"{compute}{attributes.gpu_slices}g.{memory_gb}gb"
