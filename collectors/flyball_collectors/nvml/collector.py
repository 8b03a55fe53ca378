"""All GPUs of this node as one collector."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from flyball_collectors.base import NAN, Parts, Reading
from flyball_collectors.nvml.calls.library import Library
from flyball_collectors.nvml.calls.workers import Workers
from flyball_collectors.nvml.devices.gpu import GpuReader, GpuReading
from flyball_collectors.nvml.devices.renewal import SESSION
from flyball_collectors.nvml.devices.roster import Change, Roster
from flyball_collectors.nvml.devices.topology import links_of
from flyball_collectors.nvml.events import event_records
from flyball_collectors.nvml.events.slowdown import Slowdowns
from flyball_collectors.nvml.events.watch import MIG_CHANGED, XID, EventWatch
from flyball_collectors.nvml.readings.link_errors import LinkWatch
from flyball_collectors.nvml.readings.processes import Process
from flyball_collectors.nvml.readings.rows import Rows
from flyball_collectors.parameters import GpuParameters
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, GPU_DETAIL
from flyball_contracts.records import Device, NodeEvent

_ACTION = GPU.column("nvidia.gpu.recovery_action")
_PATIENCE = 0.4  # share of a period that one GPU may take before the others go on without it
_LEAST_PATIENCE_S = 0.25  # a busy machine may let a thread wait as long
_SESSION_PATIENCE_S = 60.0  # a start of NVML wakes all GPUs, which takes seconds for each one


class NvmlCollector:
    """GPUs and their MIG instances through NVML, one row each in the order of :meth:`parts`.

    A GPU that is lost, or whose call hangs, keeps its rows, all NaN; so do all GPUs while NVML is being started again.
    ``unreadable`` names the GPUs that never returned an identity; they have no row until they do, which is retried with
    each read of the details.
    """

    name = "nvml"

    def __init__(
        self,
        library: Library,
        node: str,
        count: int,
        root: Path,
        settings: GpuParameters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watch = EventWatch(library)
        self.rows = Rows()
        self._library = library
        self._node = node
        self._settings = settings
        self._workers = Workers(clock)
        self._roster = Roster(library, self.watch, self._workers, root)
        self.latest: Reading | None = None
        self._events: list[NodeEvent] = []
        self._found: dict[str, GpuReading] = {}
        self._plain: tuple[Device, ...] = ()
        self._reported_unreadable: set[str] = set()
        self._reported_stalled: set[str] = set()
        self._reported_refused: set[str] = set()
        self._stalled_in_frame: set[str] = set()
        self._recovery: dict[str, int] = {}
        self._slowdowns, self._links = Slowdowns(), LinkWatch()
        self._rescan: set[str] = set()
        self._detail_due = True
        self._since_detail_ns = 0
        self._open, self._begun = True, False
        self._roster.look(count)
        self._parts = Parts(driver_version=library.driver_version())
        self._set_devices([reader.device for reader in self.readers])
        self.watch.start()

    @property
    def readers(self) -> list[GpuReader]:
        """The GPUs, in the order of their indexes."""
        return list(self._roster.readers.values())

    @property
    def unreadable(self) -> list[str]:
        """GPUs that never returned an identity, and why."""
        return [f"{name}: {reason}" for name, reason in self._roster.unreadable.items()]

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        """A reading with a row for each device, and periodically a second one with details.

        A GPU that was lost, stalled, added, recovered, or repartitioned since the last read is an event.
        """
        self.latest = None
        self._since_detail_ns += period_ns
        detail = self._detail_due or self._since_detail_ns + period_ns // 2 > self._settings.detail_period_s * NS_PER_S
        if detail:
            self._look(now_ns)
        rescan, self._rescan = self._rescan, set()
        jobs = {
            name: partial(reader.read, detail=detail, rescan=reader.uuid in rescan)
            for name, reader in self._roster.readers.items()
            if not self._roster.paused
        }
        patience_s = max(_PATIENCE * period_ns / NS_PER_S, _LEAST_PATIENCE_S)
        answers = self._workers.run(jobs, min(patience_s, self._settings.stalled_after_s))
        found: dict[str, GpuReading] = {}
        for name, reader in self._roster.readers.items():
            found[name] = one = answers.get(name) or self._silence(name, reader, detail=detail)
            self._compare(one, self._found.get(name), now_ns)
            self._events += self._slowdowns.note(self._node, reader.uuid, one.reasons, now_ns, period_ns)
            self._events += self._links.note(self._node, reader.uuid, one.link_errors or {}, now_ns)
        self._found = found
        self._note_stalls(now_ns, period_ns)
        self._note_refused(now_ns)
        return self._readings(found, period_ns, detail=detail)

    @property
    def refused(self) -> dict[str, str]:
        """Calls whose struct has another version in the driver, and why they are not read, empty if they are.

        NVIDIA's own binding is used instead of our layer if it knows the driver's version.
        """
        binding = self._library.binding() if self._library.mismatched else ""
        lacking = {name for reader in self.readers for name in reader.gate.unread}
        why = binding if isinstance(binding, str) else "nvidia-ml-py does not know it either; update both"
        return {name: why if name in lacking else "" for name in sorted(self._library.mismatched)}

    def parts(self) -> Parts:
        """The GPUs and instances that are the rows of the last read."""
        return self._parts

    def processes(self) -> list[Process]:
        """The processes of the last :meth:`read`, by device in the order of the rows."""
        return [process for found in self._found.values() for process in found.processes]

    def events(self) -> list[NodeEvent]:
        """Lost and recovered devices, XIDs, ECC errors and row remaps since the last call."""
        events, self._events = self._events, []
        for what, (first_ns, count) in self.watch.drain().items():
            if what.kind == MIG_CHANGED:
                self._rescan.add(what.device)
                continue
            if what.kind == XID:
                self.rows.xids[what.device] += count
            events.append(event_records.event_of(self._node, what, first_ns, count, self._recovery.get(what.device)))
        return events

    def close(self) -> None:
        """Stop the threads and shut NVML down, unless a call hangs."""
        if not self._open:
            return
        self._open = False
        self.watch.close()
        self._workers.close()
        self._roster.close()
        if not self._workers.stuck():
            self._library.stop()

    def _look(self, now_ns: int) -> None:
        change = self._roster.look(lost=any(found.lost for found in self._found.values()))
        for name, reason in self._roster.unreadable.items():
            if name not in self._reported_unreadable:
                self._reported_unreadable.add(name)
                self._events.append(event_records.gone(self._node, now_ns, "", f"{name}: {reason}; it has no row"))
        if self._begun:  # GPUs of the first look were there at the start
            self._report_change(change, now_ns)
        self._begun = True

    def _report_change(self, change: Change, now_ns: int) -> None:
        for uuid in change.added:
            self._events.append(event_records.there(self._node, now_ns, uuid, "the GPU is new"))
        for uuid in change.gone:
            self._events.append(event_records.gone(self._node, now_ns, uuid, "the GPU is not there any more"))
        if change.gone:
            here = {reader.uuid for reader in self.readers}
            self._slowdowns.keep(here)
            self._links.keep(here)
        if change.added or change.gone:  # names go by index, which may belong to another GPU now
            by_uuid = {found.devices[0].id: found for found in self._found.values()}
            self._found = {
                name: by_uuid[reader.uuid] for name, reader in self._roster.readers.items() if reader.uuid in by_uuid
            }

    def _silence(self, name: str, reader: GpuReader, *, detail: bool) -> GpuReading:
        """Known facts of a GPU whose call has not returned."""
        before = self._found.get(name)
        devices = before.devices if before else (reader.device,)
        details = [[NAN] * len(GPU_DETAIL) for _ in devices] if detail else []
        lost = before.lost if before else ""
        return GpuReading(devices, [[NAN] * len(GPU) for _ in devices], details, [], lost)

    def _compare(self, found: GpuReading, before: GpuReading | None, now_ns: int) -> None:
        device = found.devices[0].id
        action = found.rows[0][_ACTION]
        if action == action:
            self._recovery[device] = int(action)
        if found.lost and not (before and before.lost):
            message = f"the GPU does not answer any more ({found.lost}); its row is empty until it does"
            self._events.append(event_records.gone(self._node, now_ns, device, message))
        elif before and before.lost and not found.lost:
            self._events.append(event_records.there(self._node, now_ns, device, "the GPU answers again"))
        if before and _division(found.devices) != _division(before.devices):
            self._events.append(event_records.divided(self._node, now_ns, found.devices))

    def _note_stalls(self, now_ns: int, period_ns: int) -> None:
        """Report GPUs that have not responded for too long, and those that respond again."""
        after_s = self._settings.stalled_after_s
        after_s = 0.0 if period_ns > after_s * NS_PER_S else after_s  # else the next look would be too late
        silent = self._workers.stuck()
        stuck = {name: seconds for name, seconds in silent.items() if seconds >= after_s}
        session_s = silent.get(SESSION, 0.0)
        if session_s >= _SESSION_PATIENCE_S:
            stuck = dict.fromkeys(self._roster.readers, session_s)
        for name, reader in self._roster.readers.items():
            if name in stuck and name not in self._reported_stalled:
                self._events.append(event_records.stalled(self._node, now_ns, reader.uuid, stuck[name]))
                self._reported_stalled.add(name)
            elif name in self._reported_stalled and name not in silent and not self._roster.paused:
                self._events.append(event_records.there(self._node, now_ns, reader.uuid, "the GPU answers again"))
                self._reported_stalled.discard(name)

    def _note_refused(self, now_ns: int) -> None:
        if len(self._reported_refused) == len(self._library.mismatched):
            return
        for call, without in self.refused.items():
            if call not in self._reported_refused:
                self._events.append(event_records.refused(self._node, now_ns, call, without))
                self._reported_refused.add(call)

    def _readings(self, found: Mapping[str, GpuReading], period_ns: int, *, detail: bool) -> list[Reading]:
        devices = [device for one in found.values() for device in one.devices]
        self._set_devices(devices)
        if not devices:
            return []
        all_ = list(found.values())
        readings = [Reading(GPU.schema, self.rows.current(devices, all_, period_ns / NS_PER_S))]
        self.latest = readings[0]  # for the attribution, which divides these devices
        stuck = set(self._workers.stuck())
        if detail:
            stalled = [self._roster.paused or name in stuck for name in found]
            covered_s = self._since_detail_ns / NS_PER_S
            values = self.rows.detail(devices, all_, stalled, covered_s, watched=not self.watch.reason)
            readings.append(Reading(GPU_DETAIL.schema, values))
            self._since_detail_ns = 0
            self._stalled_in_frame = stuck
        self._detail_due = stuck != self._stalled_in_frame
        return readings

    def _set_devices(self, devices: Sequence[Device]) -> None:
        """Set the rows to ``devices``; links name each other by row, so they are computed from all devices."""
        plain = tuple(devices)
        if plain == self._plain:
            return
        self._plain = plain
        linked = (
            msgspec.structs.replace(device, links=links_of(device, plain, self._roster.wires)) for device in plain
        )
        self._parts = self._parts._replace(devices=tuple(linked))


def _division(devices: Sequence[Device]) -> tuple[bool, tuple[str, ...]]:
    return devices[0].mig_enabled, tuple(device.id for device in devices[1:])
