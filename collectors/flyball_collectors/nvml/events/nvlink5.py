"""Locates an error of NVLink 5 (XID 144 to 150) by its unit, sub-code and status, after NVIDIA's XID catalogue.

The driver writes ``UNIT Fatal XC0 i0 Link 8 (INFO STATUS ...)``; bits 20 to 25 of INFO are the sub-code. A link that
went down (unit NETIR_LINK_EVT, XID 149) has its reason there: the signal on it, the device at its other end, or a
driver or operator who took it down. All other units are parts of the GPU itself, except the bit error rate of a link.
"""

from collections.abc import Mapping
from typing import Literal

from flyball_contracts.records.events import Remedy, Severity

Culprit = Literal["", "gpu", "peer", "cable", "software"]
"""Whose fault a link's error is; empty where the driver does not say."""
_LINK = ("NETIR_LINK_EVT", "NETIR_LINK_DOWN")
_CODES: Mapping[Culprit, tuple[int, ...]] = {
    "cable": (2, 4, 10, 16, 18, 42, 43),
    "peer": (21, *range(32, 38)),
    "software": (15, 17, 22, 38, 40),
}
_REASONS: Mapping[int, Culprit] = {code: culprit for culprit, codes in _CODES.items() for code in codes}
"""Sub-codes of links that went down."""
_HARMLESS = frozenset({38, 40})
"""Sub-codes of links that were taken down for which the catalogue asks for no reset."""
_MANAGEMENT, _RESUMED = "NETIR_MFDE_EVENT", 3
ABOUT: Mapping[Culprit, str] = {
    "": "",
    "gpu": "in the GPU itself",
    "peer": "from the device at the other end of the link",
    "cable": "by the signal on the link: cable, connector or switch port",
    "software": "as a driver, a host or an operator took the link down",
}


def culprit_of(code: int, unit: str, subcode: int | None) -> Culprit:
    """Whose fault an error is, by its code, unit and sub-code (``None`` if the line has none)."""
    if unit in _LINK:
        return "" if subcode is None else _REASONS.get(subcode, "")
    if unit == "NETIR_BER_EVENT":
        return "cable"
    return "" if code == 149 and unit in ("NETIR", "NETIR_INT") else "gpu"


def verdict_of(
    unit: str, culprit: Culprit, subcode: int | None, status: int | None, *, fatal: bool
) -> tuple[Severity, Remedy]:
    """Severity and remedy of an error.

    A link that failed from its other end must be reset here, too, but the error is the other device's: it is a warning.
    """
    if unit == _MANAGEMENT and status == _RESUMED:
        return "info", "none"
    if not fatal or (unit in _LINK and subcode in _HARMLESS):
        return "warning", "notify"
    return ("warning", "reset_gpu") if culprit == "peer" else ("critical", "drain")
