"""Connections of the GPUs of a node."""

from collections import Counter
from collections.abc import Mapping, Sequence
from ctypes import byref, c_int, c_uint, c_void_p
from typing import Literal, NamedTuple

from flyball_collectors.nvml.calls.fields import Field, FieldBatch
from flyball_collectors.nvml.calls.gate import Gate
from flyball_collectors.nvml.devices.identity import pci_address
from flyball_contracts.records import Device
from flyball_contracts.records.inventory import Distance, Link

MAX_LINKS = 36
_GPU, _SWITCH = 0, 2  # what is at the far end of an NVLink
_DISTANCES: Mapping[int, Distance] = {
    0: "internal", 10: "single", 20: "multiple", 30: "hostbridge", 40: "node", 50: "system",
}  # fmt: skip
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # after line coding
_STATE = 165  # field: 0 is down, all else up, asleep or with traffic
_SPEED, _COMMON_SPEED = 164, 90  # fields, in MB/s one way: of one link, of any


class LinkStates:
    """Which NVLinks of a GPU are up: by field on Hopper and later, by the older call on earlier GPUs."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._links = list(range(MAX_LINKS))
        self._fields = FieldBatch(gate, [Field(_STATE, link, scope=link) for link in range(MAX_LINKS)])

    def read(self) -> dict[int, bool]:
        """Whether each link is up; only existing links."""
        row = [float("nan")] * MAX_LINKS
        self._fields.read(row)
        found = {link: state > 0 for link, state in enumerate(row) if state == state}
        if not found:
            states = {link: self._gate.number("nvmlDeviceGetNvLinkState", link) for link in self._links}
            found = {link: bool(state) for link, state in states.items() if state is not None}
            self._links = list(found)
        return found


class Wires(NamedTuple):
    """Connections of one GPU: NVLinks by the PCI address of their far end, those to switches, and its place on PCIe.

    Speeds are bytes per second one way: of one NVLink, and of all lanes of PCIe; ``None`` if unknown. ``distances`` are
    those to other GPUs by their UUID.
    """

    peers: Mapping[str, int]
    switched: int
    link_speed: float | None
    pcie_speed: float | None
    distances: Mapping[str, Distance]


def wires_of(gate: Gate, others: Mapping[str, c_void_p]) -> Wires:
    """Connections of a GPU; ``others`` are the handles of the node's other GPUs by UUID."""
    peers: Counter[str] = Counter()
    switched = 0
    links = [link for link, up in LinkStates(gate).read().items() if up]
    far_end = c_uint()
    for link in links:
        address = pci_address(gate, link=link)
        kind = far_end.value if gate.call("nvmlDeviceGetNvLinkRemoteDeviceType", link, byref(far_end)) else None
        if kind == _SWITCH:
            switched += 1
        elif kind in (_GPU, None) and address is not None:
            peers[address] += 1
    distances: dict[str, Distance] = {}
    level = c_int()
    for uuid, handle in others.items():
        if gate.call("nvmlDeviceGetTopologyCommonAncestor", handle, byref(level)) and level.value in _DISTANCES:
            distances[uuid] = _DISTANCES[level.value]
    return Wires(peers, switched, _link_speed(gate, links), pcie_speed(gate), distances)


def links_of(device: Device, devices: Sequence[Device], wires: Mapping[str, Wires]) -> tuple[Link, ...]:
    """Known links of one GPU to all others; peers are places in ``devices``."""
    own = wires.get(device.id)
    if own is None or device.parent is not None:
        return ()
    links: list[Link] = []
    for row, peer in enumerate(devices):
        if peer.id == device.id or peer.parent is not None:
            continue
        far = wires.get(peer.id)
        distance = own.distances.get(peer.id) or (far.distances.get(device.id) if far else None)
        direct = own.peers.get(peer.pci_address or "", 0)
        through = min(own.switched, far.switched) if far else 0
        if direct or through:
            count = direct or through
            speed = None if own.link_speed is None else count * own.link_speed
            kind: Literal["nvlink", "nvswitch"] = "nvlink" if direct else "nvswitch"
            links.append(Link(peer=row, kind=kind, bandwidth_bytes_per_s=speed, distance=distance, count=count))
        elif distance is not None:
            speeds = [one.pcie_speed for one in (own, far) if one and one.pcie_speed]
            links.append(
                Link(peer=row, kind="pcie", bandwidth_bytes_per_s=min(speeds, default=None), distance=distance)
            )
    return tuple(links)


def _link_speed(gate: Gate, links: Sequence[int]) -> float | None:
    row = [float("nan")] * 2
    FieldBatch(gate, [Field(_SPEED, 0, 1e6, link) for link in links[:1]] + [Field(_COMMON_SPEED, 1, 1e6)]).read(row)
    return next((speed for speed in row if speed > 0), None) if links else None


def pcie_speed(gate: Gate) -> float | None:
    """Bytes per second one way of all PCIe lanes that a GPU supports; ``None`` if unknown."""
    generation = gate.number("nvmlDeviceGetMaxPcieLinkGeneration")
    width = gate.number("nvmlDeviceGetMaxPcieLinkWidth")
    lane = _LANE_BYTES_PER_S.get(generation or 0)
    return None if lane is None or not width else lane * width
