"""Lines of NVIDIA's driver: XIDs of GPUs, SXIDs of NVSwitches, and lost GPUs.

NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No
NVRM: Xid (PCI:0000:3b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 ...)
NVRM: Xid (PCI:0000:3b:00): 45, pid=1234, name=python3, Ch 00000001 caused by previous Xid 149
NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
NVRM: Xid (0000:3b:00): 14, Channel 00000001
NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt
"""

import re

from flyball_collectors.kmsg.fault import PCI, Fault, LinkVerdict, shortened, slot_of
from flyball_collectors.nvml.events import nvlink5
from flyball_contracts.xids import NVLINK5

OFF_THE_BUS = 79
_XID = re.compile(
    rf"NVRM: Xid \({PCI}(?: GPU-I:(?P<gi>\d+))?(?: GPU-CI:(?P<ci>\d+))?[^)]*\): (?P<code>\d+)"
    r"(?:, pid=(?P<pid>\d+|'?<unknown>'?))?(?:, name=(?P<name>[^,]*))?(?:,\s*(?P<text>.*))?"
)
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]*) (?P<fatal>Fatal|Non-?fatal) XC\d+ i\d+ Link (?P<link>-?\d+)"
    r"(?: \((?P<info>0x[0-9A-Fa-f]+)(?: (?P<status>0x[0-9A-Fa-f]+))?)?"
)
_PLACE = re.compile(r"\(GPC (?P<gpc>\d+), TPC (?P<tpc>\d+)")
_CAUSE = re.compile(r"caused by previous Xid (?P<cause>\d+)")
_ACTION = re.compile(r"recovery action changed from 0x[0-9A-Fa-f]+ \([^)]*\) to (?P<action>0x[0-9A-Fa-f]+)")
_GONE = re.compile(rf"NVRM: GPU (?:at )?{PCI}: GPU has fallen off the bus")
_SXID = re.compile(rf"nvidia-nvswitch(?P<switch>\d+): SXid \({PCI}\): (?P<code>\d+), (?P<text>.*)")
_SXID_TEXT = re.compile(r"(?P<fatal>Fatal|Non-?fatal),?\s*(?P<text>.*)")


def xid_of(text: str) -> Fault | None:
    """Fault of a line with an XID; an unreadable one is an XID without a code."""
    if "NVRM: Xid (" not in text:
        return None
    found = _XID.search(text)
    if found is None:
        return Fault("xid", detail=shortened(text))
    message = (found["text"] or "").rstrip(". ")
    instance = "".join(
        f"{name} {int(number)}, "
        for name, number in (("GPU instance", found["gi"]), ("compute instance", found["ci"]))
        if number
    )
    fault = Fault("xid", slot_of(found["pci"]), int(found["code"]), detail=shortened(instance + message))
    if found["pid"] and found["pid"].isdigit():
        fault = fault._replace(process=shortened(f"{found['name'] or 'process'}[{found['pid']}]"))
    if (link := _NVLINK5.search(message)) is not None:
        fault = _of_nvlink(fault, link)._replace(detail=instance + _nvlink_detail(link))
    if (place := _PLACE.search(message)) is not None:
        fault = fault._replace(place=f"GPC {place['gpc']}, TPC {place['tpc']}")
    if (cause := _CAUSE.search(message)) is not None:
        fault = fault._replace(cause=int(cause["cause"]))
    if (action := _ACTION.search(message)) is not None:
        fault = fault._replace(action=int(action["action"], 16))
    return fault


def gone_of(text: str) -> Fault | None:
    """Fault of the line that follows XID 79, or comes alone if the driver had no time for it."""
    found = _GONE.search(text)
    return None if found is None else Fault("xid", slot_of(found["pci"]), OFF_THE_BUS, times=0)


def sxid_of(text: str) -> Fault | None:
    """Fault of a line with an SXID; the lines with its registers that follow are not faults."""
    if ": SXid (" not in text:
        return None
    found = _SXID.search(text)
    if found is None:
        return Fault("xid", subject="SXID", detail=shortened(text))
    parts = _SXID_TEXT.match(found["text"])
    if parts is None:
        return None
    where = f"NVSwitch {found['switch']} ({slot_of(found['pci'])})"
    detail = shortened(f"{where} {parts['text']}")
    return Fault("xid", "", int(found["code"]), parts["fatal"] == "Fatal", f"SXID {where}", detail=detail)


def _of_nvlink(fault: Fault, link: re.Match[str]) -> Fault:
    """The fault with whether it is fatal, and the verdict by its unit, sub-code and status."""
    fatal, unit = link["fatal"] == "Fatal", link["unit"]
    if fault.code not in NVLINK5:
        return fault._replace(fatal=fatal)
    subcode = int(link["info"], 16) >> 20 & 0x3F if link["info"] else None
    status = int(link["status"], 16) if link["status"] else None
    culprit = nvlink5.culprit_of(fault.code, unit, subcode)
    verdict = nvlink5.verdict_of(unit, culprit, subcode, status, fatal=fatal)
    return fault._replace(fatal=fatal, link=LinkVerdict(culprit, *verdict))


def _nvlink_detail(link: re.Match[str]) -> str:
    """Detail of the extended format; the subcode is in bits 20 to 25 of the first word."""
    parts = [f"{link['unit']} {link['fatal'].lower()}"]
    if int(link["link"]) >= 0:
        parts.append(f"link {int(link['link'])}")
    if link["info"]:
        parts.append(f"subcode {int(link['info'], 16) >> 20 & 0x3F}")
    if link["status"]:
        parts.append(f"status {int(link['status'], 16):#x}")
    return ", ".join(parts)
