"""What an XID asks for.

The remedies follow the immediate actions of NVIDIA's XID catalogue; for codes that it leaves open, and for
167 and 169, the choice is ours, on the safe side.
"""

from collections.abc import Mapping
from typing import NamedTuple

from flyball_contracts.records.events import Remedy, Severity

RECOVERY_ACTION_CHANGED = 154  # carries the driver's own verdict


class Verdict(NamedTuple):
    """How bad an XID is, what to do about it, and why."""

    severity: Severity
    remedy: Remedy
    about: str


_ABOUT: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "memory page fault",
    43: "stopped processing after an error of the application",
    45: "channels cleaned up after another error",
    48: "double-bit ECC error",
    62: "micro-controller halt",
    63: "row remap recorded",
    64: "row remap failed",
    74: "NVLink error",
    79: "fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP does not answer",
    120: "GSP error",
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
    ("critical", "drain"): (48, 54, 74, 78, *range(144, 152)),
    ("critical", "reboot"): (79,),
}  # fmt: skip
_VERDICTS: Mapping[int, tuple[Severity, Remedy]] = {
    code: verdict for verdict, codes in _CODES.items() for code in codes
}
# nvmlDeviceGetFieldValues 230, as nvml.h numbers it.
_RECOVERY: Mapping[int, Remedy] = {
    0: "none", 1: "reset_gpu", 2: "reboot", 3: "drain", 4: "drain", 5: "drain", 6: "reset_gpu", 7: "reboot",
}  # fmt: skip


def verdict_of(code: int, recovery_action: int | None = None) -> Verdict:
    """Verdict on an XID; a code that is not in the table takes no new work, it is never ignored.

    ``recovery_action`` is what the driver asks for now, which decides where the code is 154.
    """
    about = _ABOUT.get(code, "see NVIDIA's XID catalogue")
    if code == RECOVERY_ACTION_CHANGED:
        remedy = _RECOVERY.get(recovery_action, "unknown") if recovery_action is not None else "unknown"
        return Verdict("info" if remedy == "none" else "critical", remedy, about)
    severity, remedy = _VERDICTS.get(code, ("warning", "no_new_work"))
    return Verdict(severity, remedy, about)
