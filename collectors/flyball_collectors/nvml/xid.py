"""What an XID asks for.

The remedies follow the immediate actions of NVIDIA's XID catalogue; for codes that it leaves open, and for
167 and 169, the choice is ours, on the safe side.
"""

from collections.abc import Mapping
from typing import NamedTuple

from flyball_contracts.records.events import Remedy, Severity

RECOVERY_ACTION_CHANGED = 154  # carries the driver's own verdict
VICTIMS = frozenset({43, 45})  # follow from an earlier error, which is the one to act on
NVLINK5 = frozenset(range(144, 151))  # each is fatal or not, which only the kernel's line tells
FABRIC = NVLINK5 | {74}  # an error of one GPU that strikes its peers, too


class Verdict(NamedTuple):
    """How bad an XID is, what to do about it, and why."""

    severity: Severity
    remedy: Remedy
    about: str


_ABOUT: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "memory page fault",
    32: "corrupted push buffer stream",
    43: "stopped processing after an error of the application",
    45: "channels cleaned up after another error",
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "micro-controller halt",
    63: "row remap recorded",
    64: "row remap failed",
    74: "NVLink error",
    79: "fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timed out",
    119: "GSP does not answer",
    120: "GSP error",
    144: "NVLink SAW error",
    145: "NVLink RLW error",
    146: "NVLink TLW error",
    147: "NVLink TREX error",
    148: "NVLink NVLPW error",
    149: "NVLink NETIR error",
    150: "NVLink MSE error",
    154: "recovery action changed",
}
_CODES: Mapping[tuple[Severity, Remedy], tuple[int, ...]] = {
    ("warning", "restart_app"): (
        8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 94,
        *range(96, 106), *range(126, 136), 139,
    ),
    ("info", "none"): (
        37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 160, *range(162, 167), 170, 171, 172,
    ),
    ("warning", "notify"): (45,),
    ("warning", "no_new_work"): (142, 157, 159, 161),
    ("critical", "reset_gpu"): (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 167, 168, 169),
    ("critical", "drain"): (48, 54, 74, 78, 151),
    ("critical", "reboot"): (79,),
}  # fmt: skip
_VERDICTS: Mapping[int, tuple[Severity, Remedy]] = {
    code: verdict for verdict, codes in _CODES.items() for code in codes
}
_NVLINK5: Mapping[bool | None, tuple[Severity, Remedy]] = {
    True: ("critical", "drain"), False: ("warning", "notify"), None: ("warning", "no_new_work"),
}  # fmt: skip
# nvmlDeviceGetFieldValues 230, as nvml.h numbers it.
_RECOVERY: Mapping[int, Remedy] = {
    0: "none", 1: "reset_gpu", 2: "reboot", 3: "drain", 4: "drain", 5: "drain", 6: "reset_gpu", 7: "reboot",
}  # fmt: skip


def recovery_of(action: int | None) -> Remedy:
    """Remedy for the recovery action that the driver asks for, ``None`` where that is not known."""
    return "unknown" if action is None else _RECOVERY.get(action, "unknown")


def verdict_of(code: int, recovery_action: int | None = None, *, fatal: bool | None = None) -> Verdict:
    """Verdict on an XID; a code that is not in the table takes no new work, it is never ignored.

    ``recovery_action`` is what the driver asks for now, which decides where the code is 154. ``fatal`` is what it
    says of an error of NVLink 5, ``None`` where that is not known: then no new work goes there.
    """
    about = _ABOUT.get(code, "see NVIDIA's XID catalogue")
    if code == RECOVERY_ACTION_CHANGED:
        remedy = recovery_of(recovery_action)
        return Verdict("info" if remedy == "none" else "critical", remedy, about)
    if code in NVLINK5:
        severity, remedy = _NVLINK5[fatal]
        return Verdict(severity, remedy, about)
    severity, remedy = _VERDICTS.get(code, ("warning", "no_new_work"))
    return Verdict(severity, remedy, about)
