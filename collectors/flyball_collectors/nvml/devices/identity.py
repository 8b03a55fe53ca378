"""Identity and capabilities of a GPU."""

from ctypes import byref, c_int
from pathlib import Path

from flyball_collectors.kernel import text_of
from flyball_collectors.nvml.calls.abi import MEMORY_V2, Memory, Memory2, Pci
from flyball_collectors.nvml.calls.gate import DeviceLost, Gate
from flyball_contracts.records import Device

_ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper",
    10: "blackwell", 13: "rubin",
}  # fmt: skip


def identify(gate: Gate, index: int, root: Path, *, mig_enabled: bool = False) -> Device:
    """Identity of the GPU at ``index``; raises :class:`DeviceLost` when it does not respond or has no UUID."""
    uuid = gate.text("nvmlDeviceGetUUID")
    if not uuid:
        raise DeviceLost("nvmlDeviceGetUUID: no answer")
    limit_mw = gate.number("nvmlDeviceGetEnforcedPowerLimit")
    address = pci_address(gate)
    return Device(
        id=uuid,
        model=gate.text("nvmlDeviceGetName"),
        memory_bytes=memory_of(gate)[0],
        index=index,
        pci_address=address,
        serial=gate.text("nvmlDeviceGetSerial") or None,
        numa_node=_numa_node(root, address),
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
        architecture=_ARCHITECTURES.get(gate.number("nvmlDeviceGetArchitecture") or 0, ""),
        compute_capability=_compute_capability(gate),
        mig_enabled=mig_enabled,
    )


def memory_of(gate: Gate) -> tuple[int, int, int | None]:
    """Memory of a device in bytes: all, in use, and reserved by driver and firmware.

    Drivers that do not report the last count it as in use, and it is ``None``. All 0 if unknown.
    """
    memory = Memory2(version=MEMORY_V2)
    if gate.call("nvmlDeviceGetMemoryInfo_v2", byref(memory)):
        return int(memory.total), int(memory.used), int(memory.reserved)
    first = Memory()
    if gate.call("nvmlDeviceGetMemoryInfo", byref(first)):
        return int(first.total), int(first.used), None
    return 0, 0, None


def pci_address(gate: Gate, *, link: int | None = None) -> str | None:
    """PCI address of a GPU, or of the far end of an NVLink, as sysfs writes it: ``dddd:bb:dd.f`` in lower case."""
    pci = Pci()
    name, args = ("nvmlDeviceGetPciInfo_v3", ()) if link is None else ("nvmlDeviceGetNvLinkRemotePciInfo_v2", (link,))
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0" if gate.call(name, *args, byref(pci)) else None


def _compute_capability(gate: Gate) -> str:
    major, minor = c_int(), c_int()
    known = gate.call("nvmlDeviceGetCudaComputeCapability", byref(major), byref(minor))
    return f"{major.value}.{minor.value}" if known else ""


def _numa_node(root: Path, address: str | None) -> int | None:
    text = text_of(root / "sys/bus/pci/devices" / address / "numa_node").strip() if address else ""
    return int(text) if text.isdigit() else None  # the kernel writes -1 where there is only one
