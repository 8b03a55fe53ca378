"""Spot machines that the cloud reclaims, with notice."""

from collections.abc import Iterator, Set as AbstractSet

from flyball_contracts.config import FleetConfig, Reclaim
from flyball_contracts.errors import ConfigError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import node_event
from flyball_simulator.hardware.site import Site
from flyball_simulator.loads import Moment


class Reclaims:
    """The configured reclaims, by index of the node.

    Raises :class:`ConfigError` for a node that the fleet does not have, or that is not in a spot pool.
    """

    def __init__(self, config: FleetConfig, site: Site, start_ns: int) -> None:
        self._site, self._start_ns = site, start_ns
        names = [node.name for node in site.nodes]
        self._of: list[tuple[int, Reclaim]] = []
        for i, reclaim in enumerate(config.reclaims):
            where = f"reclaims[{i}].node: {reclaim.node!r}"
            if reclaim.node not in names:
                raise ConfigError(f"{where} is not one of: {', '.join(names)}")
            node = names.index(reclaim.node)
            market = site.nodes[node].pool.capacity_type
            if market != "spot":
                raise ConfigError(
                    f"{where} is in pool {site.nodes[node].pool.name} with capacity_type {market}; "
                    "clouds reclaim spot machines only"
                )
            self._of.append((node, reclaim))

    def away(self, t_s: float) -> set[int]:
        """Nodes that are reclaimed ``t_s`` seconds after the start, and cannot be bought."""
        return {node for node, one in self._of if one.from_s <= t_s - one.notice_s < one.from_s + one.lasts_s}

    def events(self, moment: Moment, present: AbstractSet[int]) -> Iterator[NodeEvent]:
        """The notices of a tick, from the agents of the nodes that are ``present``."""
        for node, one in self._of:
            if node in present and moment.within(one.from_s):
                at_ns = self._start_ns + round(one.from_s * NS_PER_S)
                message = f"the cloud takes this spot machine back in {one.notice_s:.0f} s"
                name = self._site.nodes[node].name
                yield node_event(name, at_ns, "spot_notice", severity="critical", remedy="drain", message=message)
