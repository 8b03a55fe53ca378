"""Number of replicas of a workload that an offer has room for, beside all reserved and held machines.

An offer with the name of one of the cell's pools has the machines that exist, those on their way, and those that the
pool may still buy. Reserved offers have the machines that exist. The platform provides all others, up to ``at_most``,
less those that exist and are unschedulable.
"""

import math
from collections.abc import Mapping

from flyball_contracts.config import Offer
from flyball_contracts.records import Pool, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import SLACK
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.pools.machines import needed
from flyball_streams.engine.offers import Holdings, part_of


class OfferAvailability:
    """Availability of a cell's offers in one tick, after the decisions so far."""

    def __init__(self, cycle: Cycle, holdings: Holdings, pools: Mapping[str, Pool]) -> None:
        self.cycle = cycle
        self.holdings = holdings
        self.pools = pools
        self._idle: dict[str, float] = {}

    def most(self, spec: WorkloadSpec, offer: Offer) -> int:
        """Replicas of a workload that an offer has room for, including those that it runs there."""
        name, each, here = offer.name, spec.gpus_per_replica, self.holdings.held(spec.workload).counts[offer.name]
        if self.cycle.placement.tenancy.bars(spec):
            return here
        others = max(0.0, self.holdings.gpus()[name] - here * each) + self._promised(spec.workload, offer)
        left = offer.at_most * offer.gpus - others - self._out_of_work(offer)
        by_machine = offer.at_most * part_of(spec, offer).replicas_per_machine
        most = math.floor(min(by_machine, left / each) + SLACK)
        if self.is_bounded(offer):
            most = min(most, here + self._more(spec, offer))
        return max(0, most)

    def is_bounded(self, offer: Offer) -> bool:
        """Whether inventories and pools limit the machines of an offer; otherwise the offer gives the limit."""
        return not offer.gpu_profile and (offer.market == "reserved" or offer.name in self.pools)

    def free(self, spec: WorkloadSpec, offer: Offer) -> int:
        """Replicas that fit on existing machines of the offer, including reserved room."""
        each, free = needed(spec), self.cycle.placement.free
        found = [free.get((offer.gpu_model, node), 0) for node in self.holdings.nodes(offer.name)]
        spans = each > offer.gpus + SLACK
        fit = math.floor(sum(found) / each + SLACK) if spans else sum(math.floor(n / each + SLACK) for n in found)
        return fit + self.placed(spec.workload, offer)

    def placed(self, workload: str, offer: Offer) -> int:
        """Pending replicas of a workload with reserved room on machines of an offer."""
        nodes = set(self.holdings.nodes(offer.name))
        return sum(bool(place) and place[0].node in nodes for place in self.cycle.reserved(workload))

    def _more(self, spec: WorkloadSpec, offer: Offer) -> int:
        """Additional replicas that existing or purchasable machines have room for."""
        more = self.free(spec, offer)
        stock = self.cycle.memory.stocks.get(offer.name)
        if offer.name in self.pools and stock is not None and stock.shape is not None:
            lost = stock.lost_recently(self.cycle.now_ns)
            buys = 0 if lost else max(0, self.pools[offer.name].max_machines - stock.size)
            more += (stock.coming + buys) * stock.shape.replicas(spec)
        promised = self._promised(spec.workload, offer, unplaced=True)
        return max(0, more - math.ceil(promised / spec.gpus_per_replica - SLACK))

    def _promised(self, workload: str, offer: Offer, *, unplaced: bool = False) -> float:
        """GPUs of an offer chosen for other workloads and not held yet; ``unplaced``: only GPUs without reservation."""
        total = 0.0
        for name, chosen in self.cycle.memory.choices.pending.items():
            spec = self.cycle.spec(name)
            if name != workload and spec is not None:
                waits = chosen.mix.get(offer.name, 0) - self.holdings.held(name).counts[offer.name]
                waits -= self.placed(name, offer) if unplaced else 0
                total += max(0, waits) * spec.gpus_per_replica
        return total

    def _out_of_work(self, offer: Offer) -> float:
        """Unused GPUs of an offer that are unschedulable: drained or unhealthy."""
        if offer.gpu_profile:
            return 0.0
        idle = self._idle.get(offer.name)
        if idle is None:
            nodes = self.cycle.placement.nodes
            idle = self._idle[offer.name] = float(
                sum(
                    model == offer.gpu_model and not usable and not base
                    for name in self.holdings.nodes(offer.name)
                    if (node := nodes.get(name)) is not None
                    for model, usable, base in zip(node.models, node.usable, node.base, strict=True)
                )
            )
        return idle
