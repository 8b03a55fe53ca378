"""Lines of the kernel itself: memory controllers (EDAC), PCIe (AER), and processes killed for memory.

EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x12345 ...)
nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)
Memory cgroup out of memory: Killed process 4321 (python3) total-vm:1234kB, anon-rss:567kB, ...
"""

import re

from flyball_collectors.kmsg.fault import PCI, Fault, shortened, slot_of

_EDAC = re.compile(r"EDAC (?P<controller>MC\d+): (?P<count>\d+) (?P<kind>CE|UE) (?P<text>.*)")
_AER = re.compile(
    rf"{PCI}: (?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \((?P<fatal>Fatal|Non-Fatal)\)"
    r"(?:, type=(?P<type>[^,]*))?"
)
_KILLED = re.compile(r"ut of memory(?: \([^)]*\))?: Killed process (?P<pid>\d+) \((?P<name>.*?)\)(?: |,|$)")


def edac_of(text: str) -> Fault | None:
    """Fault of a memory controller's line: corrected (CE) or uncorrected (UE) errors, with their count."""
    found = _EDAC.search(text)
    if found is None:
        return None
    where = f"{found['controller']} {found['text'].partition(' (')[0]}"
    return Fault(
        "ecc", fatal=found["kind"] == "UE", subject="host memory", times=int(found["count"]), detail=shortened(where)
    )


def aer_of(text: str) -> Fault | None:
    """Fault of an uncorrected PCIe error; the corrected ones are counters, not events."""
    found = _AER.search(text)
    if found is None:
        return None
    return Fault("pcie_error", slot_of(found["pci"]), fatal=found["fatal"] == "Fatal", detail=found["type"] or "")


def killed_of(text: str) -> Fault | None:
    """Fault of a process that was killed because memory ran out, of the host or of its cgroup."""
    found = _KILLED.search(text)
    if found is None:
        return None
    process = shortened(f"{found['name']}[{found['pid']}]")
    return Fault("oom_kill", subject=process, process=process, detail="of its cgroup" if "cgroup" in text else "")
