"""The same cell and the same demand without Flyball."""

from flyball_contracts.config import FleetConfig
from flyball_contracts.records import Account
from flyball_simulator.cell.accounts import Meter
from flyball_simulator.cell.healing import Healing
from flyball_simulator.cell.hpa import Autoscalers
from flyball_simulator.cell.plant import Plant
from flyball_simulator.specs import all_workloads


class Baseline:
    """The same cell with standard autoscaling.

    Services have a horizontal pod autoscaler, jobs start as soon as they fit.

    Pools have a cluster autoscaler, which buys a machine as soon as a replica does not fit.

    Nothing is scheduled by price or carbon, paused, moved or consolidated. A dead GPU is detected by timeouts only, a
    straggler never. The baseline publishes only its account.
    """

    def __init__(self, config: FleetConfig, start_ns: int) -> None:
        self.plant = Plant(config, start_ns, by_rule=True)
        self._healing = Healing(self.plant)
        self._autoscalers = Autoscalers(self.plant)
        self._meter = Meter(self.plant, "baseline")
        first = self.plant.batches.first
        for w, job in enumerate(all_workloads(config)[first:], first):
            if not job.replicas:
                self.plant.scale(w, self.plant.placement.workloads[w].most)

    def tick(self) -> None:
        """Advance by one tick."""
        self.plant.begin()
        self._healing.advance()
        self._meter.add(self.plant.step())
        self._autoscalers.advance()

    def account(self) -> Account:
        """Cost and results up to the last tick."""
        return self._meter.account()
