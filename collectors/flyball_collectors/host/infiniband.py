"""InfiniBand and RoCE traffic from ``/sys/class/infiniband``, which ``/proc/net/dev`` lacks."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from flyball_collectors.kernel import numbers, text_of

_WORD_BYTES = 4  # the unit of the data counters, as the InfiniBand specification has it
_ARP_INFINIBAND = "32"
_COUNTERS = {
    "system.network.io{direction=receive}": ("port_rcv_data",),
    "system.network.io{direction=transmit}": ("port_xmit_data",),
    "system.network.errors{direction=receive}": ("port_rcv_errors", "symbol_error", "link_downed"),
    "system.network.errors{direction=transmit}": ("port_xmit_discards",),
}


def ports(root: Path) -> list[Path]:
    """Folder of each port, in a fixed order."""
    try:
        return sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    except OSError:
        return []


def read_ports(folders: list[Path]) -> Mapping[str, Mapping[str, float]]:
    """Bytes and errors since boot by metric key and port; missing counters are left out."""
    return {key: dict(_counts(folders, names, key)) for key, names in _COUNTERS.items()}


def is_over_infiniband(root: Path, interface: str) -> bool:
    """Whether an interface is IP over InfiniBand, whose bytes its port also counts."""
    return text_of(root / "sys/class/net" / interface / "type").strip() == _ARP_INFINIBAND


def _counts(folders: list[Path], names: tuple[str, ...], key: str) -> Iterator[tuple[str, float]]:
    unit = _WORD_BYTES if ".io{" in key else 1
    for folder in folders:
        for name in names:
            if found := numbers(text_of(folder / "counters" / name).split()):
                yield f"{folder.parent.parent.name}/{folder.name}/{name}", found[0] * unit
