"""Severity, remedy and message of a fault in the kernel log."""

from typing import NamedTuple

from flyball_collectors.kmsg.burst import MOST_NAMES, Tally
from flyball_collectors.nvml.events.nvlink5 import ABOUT
from flyball_collectors.nvml.events.xid import VICTIMS, Verdict, verdict_of

FOLLOWS = "; follows XID"
_SAME_PLACE_NS = 24 * 3600 * 1_000_000_000
_ANY_PROGRAM = 13  # an exception of the program, unless several programs have it at one place of the chip


class _Struck(NamedTuple):
    time_ns: int
    processes: frozenset[str]


class FaultClassifier:
    """Classifies faults, and remembers where on the chips programs failed."""

    def __init__(self) -> None:
        self._struck: dict[tuple[str, str], _Struck] = {}

    def verdict(self, tally: Tally) -> Verdict:
        """Severity, remedy and message of faults that are reported as one."""
        fault = tally.first
        if fault.kind == "ecc":
            worst = Verdict("critical", "drain", "uncorrected") if fault.fatal else Verdict("info", "none", "corrected")
            return worst._replace(about=_message(f"{worst.about} error of the host's memory", tally))
        if fault.kind == "pcie_error":
            about = f"{'fatal' if fault.fatal else 'uncorrected'} PCIe error at {fault.pci}"
            return Verdict(*(("critical", "drain") if fault.fatal else ("warning", "notify")), _message(about, tally))
        if fault.kind == "oom_kill":
            return Verdict("warning", "restart_app", _message("a process was killed for memory", tally))
        if fault.subject.startswith("SXID"):
            return self._sxid(tally)
        return self._xid(tally)

    def _sxid(self, tally: Tally) -> Verdict:
        fault = tally.first
        if fault.code is None:
            return Verdict("warning", "unknown", _message("a line with an SXID that cannot be read", tally))
        about = _message(f"SXID {fault.code}: {'fatal' if fault.fatal else 'non-fatal'} error of a switch", tally)
        return Verdict(*(("critical", "drain") if fault.fatal else ("warning", "notify")), about)

    def _xid(self, tally: Tally) -> Verdict:
        fault = tally.first
        if fault.code is None:
            return Verdict("warning", "unknown", _message("a line with an XID that cannot be read", tally))
        severity, remedy, about = verdict_of(fault.code, tally.action, fatal=fault.fatal)
        if fault.link is not None:
            culprit, severity, remedy = fault.link
            about = f"{about} {ABOUT[culprit]}".rstrip()
        text = _message(f"XID {fault.code}: {about}", tally)
        if fault.code in VICTIMS and tally.cause is not None:
            return Verdict("info", "none", f"{text}{FOLLOWS} {tally.cause}")
        if fault.code == _ANY_PROGRAM and self._again(tally):
            return Verdict("warning", "notify", f"{text}; again in one place: run the GPU's diagnostics")
        return Verdict(severity, remedy, text)

    def _again(self, tally: Tally) -> bool:
        """Whether another process failed at the same place of the chip; at many places, the program is the cause."""
        if len(tally.places) != 1 or not tally.processes:
            return False
        key = (tally.first.pci, next(iter(tally.places)))
        before = self._struck.get(key)
        self._struck[key] = _Struck(tally.first_ns, tally.processes)
        recent = before is not None and tally.first_ns - before.time_ns < _SAME_PLACE_NS
        return before is not None and recent and not before.processes & tally.processes


def _message(about: str, tally: Tally) -> str:
    parts = [about + (f", {tally.times} times" if tally.times > 1 else "")]
    if tally.processes:
        first, *others = sorted(tally.processes)
        more = "many more" if len(others) + 1 == MOST_NAMES else f"{len(others)} more"
        parts.append(f"in {first}" + (f" and {more}" if others else ""))
    if tally.first.detail:
        parts.append(tally.first.detail)
    return "; ".join(parts)
