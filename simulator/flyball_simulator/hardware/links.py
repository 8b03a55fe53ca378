"""Links that fail: their errors, and what agents tell of them."""

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
"""An agent tells of a link at once, after a minute, then after twice as long each time, up to an hour."""


class _Said(NamedTuple):
    """What a kind of event says, but for its message."""

    kind: Literal["nvlink_error", "pcie_error", "xid"]
    severity: Severity
    remedy: Remedy


_ERRS = _Said("nvlink_error", "warning", "notify")
_UNCORRECTED = _Said("pcie_error", "warning", "notify")
_FATAL = _Said("pcie_error", "critical", "drain")


class LinkFault:
    """One faulty link of the GPU in a row of the fleet, and the errors of which nothing was told yet."""

    def __init__(self, row: int, fault: FailingLink) -> None:
        self.row, self.fault = row, fault
        self._untold, self._told_s, self._quiet_s = 0, fault.from_s, 0.0

    def is_on(self, moment: Moment) -> bool:
        """Whether the link is faulty."""
        return 0 <= moment.t_s - self.fault.from_s < self.fault.lasts_s

    def errors_in(self, moment: Moment, random: Generator) -> int:
        """Errors of a tick."""
        since_s = min(moment.dt_s, moment.t_s - self.fault.from_s)
        new = int(random.poisson(ERRORS_PER_S * since_s)) + moment.within(self.fault.from_s)
        self._untold += new
        return new

    def events(self, moment: Moment, node: str, device: str, start_ns: int) -> Iterator[NodeEvent]:
        """What the agent of its node tells in a tick."""
        fault = self.fault
        if not self.is_on(moment):
            return
        fails_s = fault.from_s + FAILS_AFTER_S
        if fault.link is not None and self._untold and moment.t_s - self._told_s >= self._quiet_s:
            count, since_s = self._untold, max(moment.t_s - self._told_s, moment.dt_s)
            self._quiet_s = min(2 * self._quiet_s, LONGEST_QUIET_S) or FIRST_QUIET_S
            self._untold, self._told_s = 0, moment.t_s
            words = f"NVLink {fault.link}: {count} CRC errors in {since_s:.4g} s"
            yield _event(_ERRS, node, device, start_ns, moment.t_s, words, link=fault.link, count=count)
        elif fault.link is None and moment.within(fault.from_s):
            words = "uncorrected PCIe error (Data Link Layer)"
            yield _event(_UNCORRECTED, node, device, start_ns, fault.from_s, words)
        if moment.within(fails_s) and fault.link is None:
            yield _event(_FATAL, node, device, start_ns, fails_s, "fatal PCIe error (Transaction Layer)")
        elif moment.within(fails_s):
            known = xid_of(NVLINK_ERROR)
            said = _Said("xid", known.severity, known.remedy)
            yield _event(said, node, device, start_ns, fails_s, known.about, code=NVLINK_ERROR)


def _event(
    said: _Said, node: str, device: str, start_ns: int, t_s: float, words: str, *, code: int | None = None,
    link: int | None = None, count: int | None = None,
) -> NodeEvent:  # fmt: skip
    return node_event(
        node, start_ns + round(t_s * NS_PER_S), said.kind, severity=said.severity, device=device, code=code,
        remedy=said.remedy, message=words, link=link, count=count,
    )  # fmt: skip
