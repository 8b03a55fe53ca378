"""Network traffic from ``/proc/net/dev`` and of the InfiniBand ports."""

import os
from pathlib import Path

from flyball_collectors.base import Values
from flyball_collectors.host.infiniband import is_over_infiniband, ports, read_ports
from flyball_collectors.kernel import numbers, text_of


def read_network(root: Path) -> Values:
    """Bytes and errors since boot, for each interface except the loopback, and for each InfiniBand port.

    Bonds, bridges, and other virtual interfaces are left out beside a real one: their bytes pass through that, too.
    It is read in the namespace of process 1 if permitted, so an agent in a container whose ``root`` is the host's sees
    the host's interfaces.
    """
    received: dict[str, float] = {}
    sent: dict[str, float] = {}
    errors_in: dict[str, float] = {}
    errors_out: dict[str, float] = {}
    known = False
    folders = ports(root)
    text = text_of(root / "proc/1/net/dev") or text_of(root / "proc/net/dev")
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        counts = numbers(rest.split())
        name = name.strip()
        if not colon or len(counts) < 16:
            continue
        known = True
        if name == "lo" or (folders and is_over_infiniband(root, name)):
            continue
        received[name], errors_in[name], sent[name], errors_out[name] = counts[0], counts[2], counts[8], counts[10]
    virtual = _virtual(root)
    if not virtual.issuperset(received):
        for values in (received, errors_in, sent, errors_out):
            for name in virtual & values.keys():
                del values[name]
    if not known and not folders:
        return {}
    columns = {
        "system.network.io{direction=receive}": received,
        "system.network.io{direction=transmit}": sent,
        "system.network.errors{direction=receive}": errors_in,
        "system.network.errors{direction=transmit}": errors_out,
    }
    for key, of_ports in read_ports(folders).items():
        columns[key] |= of_ports
    return columns


def _virtual(root: Path) -> set[str]:
    try:
        return set(os.listdir(root / "sys/devices/virtual/net"))
    except OSError:
        return set()
