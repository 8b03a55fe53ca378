"""Verdicts on XIDs, from :mod:`flyball_contracts.xids` and the driver.

If the driver names a recovery action, or says whether an NVLink error is fatal, that outranks the table.
"""

from collections.abc import Mapping
from typing import NamedTuple

from flyball_contracts.records.events import Remedy, Severity
from flyball_contracts.xids import NVLINK5, RECOVERY_ACTION_CHANGED, xid_of

VICTIMS = frozenset({43, 45})  # follow from an earlier error, which is the one to act on
FABRIC = NVLINK5 | {74}  # an error of one GPU that strikes its peers, too


class Verdict(NamedTuple):
    """Severity, remedy and reason for an XID."""

    severity: Severity
    remedy: Remedy
    about: str


_NVLINK5: Mapping[bool | None, tuple[Severity, Remedy]] = {
    True: ("critical", "drain"), False: ("warning", "notify"), None: ("warning", "no_new_work"),
}  # fmt: skip
# nvmlDeviceGetFieldValues 230, as nvml.h numbers it.
_RECOVERY: Mapping[int, Remedy] = {
    0: "none", 1: "reset_gpu", 2: "reboot", 3: "drain", 4: "drain", 5: "drain", 6: "reset_gpu", 7: "reboot",
}  # fmt: skip


def recovery_of(action: int | None) -> Remedy:
    """Remedy for the recovery action that the driver requests; ``action`` is ``None`` if unknown."""
    return "unknown" if action is None else _RECOVERY.get(action, "unknown")


def verdict_of(code: int, recovery_action: int | None = None, *, fatal: bool | None = None) -> Verdict:
    """Verdict on an XID; an unknown code gets no new work and is never ignored.

    ``recovery_action`` is the driver's present request, which decides for code 154. ``fatal`` is its statement on an
    error of NVLink 5, ``None`` if unknown: then the GPU gets no new work.
    """
    known = xid_of(code)
    if code == RECOVERY_ACTION_CHANGED:
        remedy = recovery_of(recovery_action)
        return Verdict("info" if remedy == "none" else "critical", remedy, known.about)
    if code in NVLINK5:
        severity, remedy = _NVLINK5[fatal]
        return Verdict(severity, remedy, known.about)
    return Verdict(known.severity, known.remedy, known.about)
