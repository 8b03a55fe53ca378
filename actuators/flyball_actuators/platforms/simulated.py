"""The simulated fleet: the webhook interface, and node checks and pools of machines as well."""

import msgspec

from flyball_actuators.platforms.base import Capabilities, Rejected, Subject
from flyball_actuators.platforms.webhook import WebhookPlatform
from flyball_contracts.records import AnyDecision, SubjectState
from flyball_contracts.simulated import CellState
from flyball_contracts.webhook import Cell


class SimulatedPlatform(WebhookPlatform):
    """One simulated cell and the machines of its pools; the platform's time is the fleet's event time.

    Mode live requires no allow-list, kill switch or token here, so a server that is no simulated fleet is refused.
    """

    name = "simulated"
    capabilities = Capabilities(
        kinds=WebhookPlatform.capabilities.kinds | {"Check"},
        tracks=True,
        about=frozenset[Subject]({"workload", "node", "pool"}),
        promises=WebhookPlatform.capabilities.promises._replace(node=True),
    )

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """As for any server behind the interface, if this one reports that it is a simulated fleet."""
        if not self._cell:
            status, body = self._call("GET", "/v1/cell")
            found = self._read(status, body, Cell, 200)
            try:
                msgspec.json.decode(body, type=CellState)
            except msgspec.ValidationError:
                return Rejected(
                    "no_platform",
                    f"the platform at {self._url} is no simulated fleet; set driver: webhook in its entry in "
                    "actuator.platforms",
                )
            self._cell = found.cell
        return super().observe(decision)
