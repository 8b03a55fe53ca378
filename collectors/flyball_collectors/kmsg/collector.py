"""The kernel log as a collector: events only."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flyball_collectors.base import Collector, Reading
from flyball_collectors.kmsg.burst import Burst, Tally
from flyball_collectors.kmsg.classifier import FaultClassifier
from flyball_collectors.kmsg.fault import Fault
from flyball_collectors.kmsg.host_lines import aer_of, edac_of, killed_of
from flyball_collectors.kmsg.nvidia_lines import gone_of, sxid_of, xid_of
from flyball_collectors.kmsg.reader import KmsgReader
from flyball_collectors.kmsg.record import LogRecord
from flyball_collectors.nvml import Absent
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import node_event

SLOT = "PCI:"
"""Prefix of the device of an event that is known by its slot only; :class:`EventMerger` replaces it by the device's id.
"""
_PARSERS: Sequence[Callable[[str], Fault | None]] = (xid_of, sxid_of, gone_of, edac_of, aer_of, killed_of)
_HOW = (
    "give the agent CAP_SYSLOG and read access to /dev/kmsg (systemd: ProtectKernelLogs=no, PrivateUsers=no, "
    "AmbientCapabilities=CAP_SYSLOG, CapabilityBoundingSet=CAP_SYSLOG, DeviceAllow=/dev/kmsg r), or set "
    "kernel.dmesg_restrict=0; without it NVML still reports XIDs, but not switches, memory and PCIe"
)


def fault_of(text: str) -> Fault | None:
    """The fault in a kernel line, ``None`` for most lines."""
    return next((fault for parse in _PARSERS if (fault := parse(text)) is not None), None)


def open_kmsg(node: str, root: Path = Path("/")) -> "KernelLog | Absent":
    """Collector of the kernel log under ``root``, or why there is none; never raises."""
    path = root / "dev/kmsg"
    try:
        return KernelLog(node, path)
    except FileNotFoundError:
        return Absent(f"there is no {path}", f"in a container mount the host's /dev/kmsg there, and {_HOW}")
    except PermissionError:
        return Absent(f"{path} may not be read", _HOW)
    except OSError as error:
        return Absent(f"{path} cannot be read: {error.strerror}", _HOW)


class KernelLog(Collector):
    """Events of the lines that the kernel writes from now on; equal ones between two calls of :meth:`events` are one.

    Lines that processes write to the log are ignored: any process could write them. The device of an event is
    ``PCI:dddd:bb:dd``. ``reader`` counts missed lines. Raises :class:`OSError` when the log cannot be opened.
    """

    name = "kmsg"

    def __init__(
        self,
        node: str,
        path: Path,
        clock: Callable[[], int] = time.time_ns,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._node = node
        self._clock = clock
        self._burst = Burst()
        self._classifier = FaultClassifier()
        self._reported_missed = 0
        self._reported_deaf = False
        self.reader = KmsgReader(path, self._take, clock, read)

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        """Empty: the log has events only."""
        return []

    def events(self) -> list[NodeEvent]:
        """Faults since the last call, and how much of the log was not read."""
        events = [self._event_of(tally) for tally in self._burst.drain()]
        missed = self.reader.missed
        if missed > self._reported_missed:
            message = f"{missed} records of the kernel log were overwritten before they were read, since the start"
            events.append(node_event(self._node, self._clock(), "records_dropped", severity="warning", message=message))
            self._reported_missed = missed
        if self.reader.reason and not self._reported_deaf:
            message = f"{self.reader.reason}; what it says is not known until the agent restarts"
            events.append(node_event(self._node, self._clock(), "records_dropped", severity="warning", message=message))
            self._reported_deaf = True
        return events

    def close(self) -> None:
        """Stop reading."""
        self.reader.close()

    def _take(self, record: LogRecord, now_ns: int) -> None:
        if record.by_kernel and (fault := fault_of(record.text)) is not None:
            self._burst.add(fault, now_ns)

    def _event_of(self, tally: Tally) -> NodeEvent:
        fault = tally.first
        severity, remedy, message = self._classifier.verdict(tally)
        device = f"{SLOT}{fault.pci}" if fault.pci else ""
        return node_event(
            self._node,
            tally.first_ns,
            fault.kind,
            severity=severity,
            device=device,
            code=fault.code,
            remedy=remedy,
            message=message,
        )
