"""Racks that lose power and leaf switches that fail: faults of shared equipment affect all of its nodes at once."""

from collections.abc import Iterator

from flyball_contracts.config import FleetConfig, LeafFault, RackFault
from flyball_contracts.errors import ConfigError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import node_event
from flyball_simulator.hardware.faults import FaultyGpu
from flyball_simulator.hardware.site import Site
from flyball_simulator.loads import Moment

BRAKE = 0.5
"""Share of its clock that a GPU keeps under the power brake; NVIDIA's slowdown by hardware halves it or more."""


class Outages:
    """The configured faults of whole racks and leaf switches.

    Raises :class:`ConfigError` when one names a rack or switch that the fleet does not have.
    """

    def __init__(self, config: FleetConfig, site: Site) -> None:
        self._site = site
        racks, leaves = [node.rack for node in site.nodes], [node.leaf for node in site.nodes]
        self._racks = [(f, _of(f"rack_faults[{i}].rack", f.rack, racks)) for i, f in enumerate(config.rack_faults)]
        self._leaves = [(f, _of(f"leaf_faults[{i}].leaf", f.leaf, leaves)) for i, f in enumerate(config.leaf_faults)]

    def dark(self, moment: Moment) -> set[int]:
        """Nodes without power at a tick."""
        return {node for fault, nodes in self._racks if _is_dark(fault, moment) for node in nodes}

    def cut(self, moment: Moment) -> set[int]:
        """Unreachable nodes at a tick."""
        return {node for fault, nodes in self._leaves if _is_on(fault, moment) for node in nodes}

    def faulty(self, moment: Moment) -> Iterator[FaultyGpu]:
        """The faulty GPUs of these nodes in a tick."""
        dark = self.dark(moment)
        for row in self._rows(dark):
            yield FaultyGpu(row, 0.0, dead=True, lost=True, off=True)
        for row in self._rows(self.cut(moment) - dark):
            yield FaultyGpu(row, 1.0, cut=True)
        for fault, nodes in self._racks:
            if _is_on(fault, moment):
                for row in self._rows(set(nodes) - dark):
                    yield FaultyGpu(row, BRAKE, braked=True)

    def events(self, moment: Moment, start_ns: int) -> Iterator[NodeEvent]:
        """Events of the power brake in a tick, by GPU; agents without power send none."""
        for fault, nodes in self._racks:
            if moment.within(fault.from_s) and not _is_dark(fault, moment):
                words = "clocks are lowered by the power brake of the host"
                for node, device in self._devices(nodes):
                    at_ns = start_ns + round(fault.from_s * NS_PER_S)
                    yield node_event(
                        node, at_ns, "power_brake", severity="warning", device=device, remedy="notify", message=words
                    )
            ends_s = fault.from_s + fault.lasts_s
            stays_on = fault.dark_after_s is None or fault.dark_after_s >= fault.lasts_s
            if moment.within(ends_s) and stays_on:
                words = (
                    f"clocks are no longer lowered; they were for {fault.lasts_s:.4g} s within {fault.lasts_s:.4g} s"
                )
                for node, device in self._devices(nodes):
                    yield node_event(
                        node, start_ns + round(ends_s * NS_PER_S), "power_brake", device=device, message=words
                    )

    def _rows(self, nodes: set[int]) -> Iterator[int]:
        for node in sorted(nodes):
            yield from range(int(self._site.starts[node]), int(self._site.starts[node + 1]))

    def _devices(self, nodes: tuple[int, ...]) -> Iterator[tuple[str, str]]:
        for node in nodes:
            for device in self._site.nodes[node].devices:
                yield self._site.nodes[node].name, device.id


def _of(where: str, name: str, names: list[str]) -> tuple[int, ...]:
    found = tuple(i for i, one in enumerate(names) if one == name)
    if not found:
        known = ", ".join(dict.fromkeys(one for one in names if one)) or "none: no pool has them"
        raise ConfigError(f"{where}: {name!r} is not one of: {known}")
    return found


def _is_on(fault: RackFault | LeafFault, moment: Moment) -> bool:
    return 0 <= moment.t_s - fault.from_s < fault.lasts_s


def _is_dark(fault: RackFault, moment: Moment) -> bool:
    return fault.dark_after_s is not None and _is_on(fault, moment) and moment.t_s >= fault.from_s + fault.dark_after_s
