"""A fault in the kernel log; the parsers beside this file make it from text."""

import re
from typing import NamedTuple

from flyball_collectors.nvml.events.nvlink5 import Culprit
from flyball_contracts.records.events import EventKind, Remedy, Severity

LONGEST_DETAIL = 160
PCI = r"(?:PCI:)?(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?"
_PCI = re.compile(PCI)


class LinkVerdict(NamedTuple):
    """Whose fault an error of NVLink 5 is, and its severity and remedy."""

    culprit: Culprit
    severity: Severity
    remedy: Remedy


class Fault(NamedTuple):
    """One fault.

    ``pci`` is the slot ``dddd:bb:dd`` it is about, empty for the host. ``code`` is the number of the XID or SXID, and
    ``fatal`` whether the line calls it fatal, ``None`` if it does not state that. Faults with different ``subject`` are
    counted separately. ``times`` is 0 for a line that only repeats another. ``place`` is the location on the GPU,
    ``process`` the affected process, ``cause`` the XID that the driver names as its reason, and ``action`` the recovery
    it requests. ``link`` is the verdict on an error of NVLink 5; faults with different ones are counted separately.
    """

    kind: EventKind
    pci: str = ""
    code: int | None = None
    fatal: bool | None = None
    subject: str = ""
    times: int = 1
    detail: str = ""
    place: str = ""
    process: str = ""
    cause: int | None = None
    action: int | None = None
    link: LinkVerdict | None = None


def slot_of(address: str) -> str:
    """Slot ``dddd:bb:dd`` of a PCI address in any format of the kernel, the driver or NVML."""
    found = _PCI.fullmatch(address.strip())
    if found is None:
        return ""
    domain, bus, device = found["pci"].lower().split(":")
    return f"{domain[-4:] if domain[:-4].strip('0') == '' else domain}:{bus}:{device}"


def shortened(text: str) -> str:
    """A detail from the log, shortened for a message."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_DETAIL else text[: LONGEST_DETAIL - 3] + "..."
