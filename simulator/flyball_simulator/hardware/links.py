"""Faulty links: their errors, and the events that agents report."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from numpy.random import Generator

from flyball_contracts.config import FailingLink
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import Remedy, Severity, node_event
from flyball_contracts.xids import xid_of
from flyball_simulator.loads import Moment

NVLINK_ERROR = 74
ERRORS_PER_S, PACE, FAILS_AFTER_S = 4.0, 0.8, 30.0
FIRST_QUIET_S, LONGEST_QUIET_S = 60.0, 3_600.0
"""An agent reports a link at once, after a minute, and then at doubling intervals of up to an hour."""


class _EventType(NamedTuple):
    """An event without its message."""

    kind: Literal["nvlink_error", "pcie_error", "xid"]
    severity: Severity
    remedy: Remedy


_CRC_ERRORS = _EventType("nvlink_error", "warning", "notify")
_UNCORRECTED = _EventType("pcie_error", "warning", "notify")
_FATAL = _EventType("pcie_error", "critical", "drain")


class LinkFault:
    """One faulty link of the GPU in a row of the fleet, and its unreported errors."""

    def __init__(self, row: int, fault: FailingLink) -> None:
        self.row, self.fault = row, fault
        self._unreported, self._reported_s, self._quiet_s = 0, fault.from_s, 0.0

    def is_on(self, moment: Moment) -> bool:
        """Whether the link is faulty."""
        return 0 <= moment.t_s - self.fault.from_s < self.fault.lasts_s

    def errors_in(self, moment: Moment, random: Generator) -> int:
        """Errors of a tick."""
        since_s = min(moment.dt_s, moment.t_s - self.fault.from_s)
        new = int(random.poisson(ERRORS_PER_S * since_s)) + moment.within(self.fault.from_s)
        self._unreported += new
        return new

    def events(self, moment: Moment, node: str, device: str, start_ns: int) -> Iterator[NodeEvent]:
        """Events that the node's agent reports in a tick."""
        fault = self.fault
        if not self.is_on(moment):
            return
        fails_s = fault.from_s + FAILS_AFTER_S
        if fault.link is not None and self._unreported and moment.t_s - self._reported_s >= self._quiet_s:
            count, since_s = self._unreported, max(moment.t_s - self._reported_s, moment.dt_s)
            self._quiet_s = min(2 * self._quiet_s, LONGEST_QUIET_S) or FIRST_QUIET_S
            self._unreported, self._reported_s = 0, moment.t_s
            message = f"NVLink {fault.link}: {count} CRC errors in {since_s:.4g} s"
            yield _event(_CRC_ERRORS, node, device, start_ns, moment.t_s, message, link=fault.link, count=count)
        elif fault.link is None and moment.within(fault.from_s):
            message = "uncorrected PCIe error (Data Link Layer)"
            yield _event(_UNCORRECTED, node, device, start_ns, fault.from_s, message)
        if moment.within(fails_s) and fault.link is None:
            yield _event(_FATAL, node, device, start_ns, fails_s, "fatal PCIe error (Transaction Layer)")
        elif moment.within(fails_s):
            known = xid_of(NVLINK_ERROR)
            event_type = _EventType("xid", known.severity, known.remedy)
            yield _event(event_type, node, device, start_ns, fails_s, known.about, code=NVLINK_ERROR)


def _event(
    event_type: _EventType, node: str, device: str, start_ns: int, t_s: float, message: str, *, code: int | None = None,
    link: int | None = None, count: int | None = None,
) -> NodeEvent:  # fmt: skip
    return node_event(
        node, start_ns + round(t_s * NS_PER_S), event_type.kind, severity=event_type.severity, device=device, code=code,
        remedy=event_type.remedy, message=message, link=link, count=count,
    )  # fmt: skip
