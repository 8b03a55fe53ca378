"""NVIDIA's XIDs: cause, severity and remedy of each. One table for agents and workers.

Remedies follow the immediate actions of NVIDIA's XID catalogue (RESTART_APP: restart_app, IGNORE: none, RESET_GPU:
reset_gpu, RESTART_BM: reboot); for codes that it leaves open, and for 167 to 169, the choice is our own and cautious.

``application``: the program caused it, or ended because of it, and the GPU is healthy: the job's owner is notified and
nothing is moved. ``victim``: it follows from an earlier error, which is the one to act on. All others are hardware
faults: memory, links to peers or bus, firmware or driver, power. A code that is not in the table is ``unknown``.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from flyball_contracts.records.events import Remedy, Severity

Fault = Literal["application", "victim", "memory", "link", "bus", "firmware", "driver", "power", "gpu", "unknown"]
RECOVERY_ACTION_CHANGED = 154
"""The XID with the driver's own verdict, which outranks the table."""
NVLINK5 = frozenset(range(144, 151))
"""Errors of NVLink 5; each is fatal or not, and only the kernel's log line shows which."""


class Xid(NamedTuple):
    """Cause, severity and remedy of an XID, and its description."""

    fault: Fault
    severity: Severity
    remedy: Remedy
    about: str


UNKNOWN = Xid("unknown", "warning", "no_new_work", "unknown: not in the table; see NVIDIA's XID catalogue")
_ELSE = "see NVIDIA's XID catalogue"
_ABOUT: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "memory page fault",
    32: "corrupted push buffer stream",
    43: "stopped processing after an error of the application",
    45: "channels cleaned up after another error",
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
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
_CODES: Mapping[tuple[Fault, Severity, Remedy], tuple[int, ...]] = {
    ("application", "warning", "restart_app"): (
        8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89,
        *range(96, 106), *range(126, 136), 139,
    ),
    ("application", "info", "none"): (37, 43, 44, 66, 67),
    ("victim", "warning", "notify"): (45,),
    ("memory", "warning", "restart_app"): (94,),
    ("memory", "info", "none"): (63, 92, 160),
    ("memory", "warning", "no_new_work"): (157, 159, 161),
    ("memory", "critical", "reset_gpu"): (64, 95, 140),
    ("memory", "critical", "drain"): (48,),
    ("link", "warning", "no_new_work"): tuple(sorted(NVLINK5)),
    ("link", "critical", "reset_gpu"): (155, 156, 158),
    ("link", "critical", "drain"): (74,),
    ("bus", "critical", "reboot"): (79,),
    ("bus", "critical", "reset_gpu"): (167,),
    ("firmware", "critical", "reset_gpu"): (62, 119, 120, 136, 143, 168, 169),
    ("driver", "info", "none"): (38, 93, 106, 107, 121, 137, 141, 152, 153, 170, 171, 172),
    ("driver", "critical", "drain"): (78, 151),
    ("driver", "warning", "no_new_work"): (142,),
    ("power", "critical", "drain"): (54,),
    ("power", "info", "none"): (162, 163, 164, 165, 166),
    ("gpu", "critical", "reset_gpu"): (46, 109, 110),
    ("gpu", "critical", "unknown"): (RECOVERY_ACTION_CHANGED,),
}  # fmt: skip
XIDS: Mapping[int, Xid] = {
    code: Xid(*verdict, _ABOUT.get(code, _ELSE)) for verdict, codes in _CODES.items() for code in codes
}


def xid_of(code: int) -> Xid:
    """The entry of a code; an unknown code gets no new work and is never ignored."""
    return XIDS.get(code, UNKNOWN)
