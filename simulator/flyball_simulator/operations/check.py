"""Check: cordons GPUs of a node, tests them, and uncordons them if all are healthy."""

from msgspec.structs import replace

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Check, SubjectState
from flyball_simulator.cell.plant import Plant
from flyball_simulator.operations.base import Progress, Refused

CHECK_S = 30.0
"""Duration of a check."""


class CheckTask:
    """The simulated burn-in fails for a GPU that is dead, slow, or has memory or link errors."""

    def __init__(self, plant: Plant, decision: Check) -> None:
        self._plant = plant
        self.names: tuple[str, ...] = ()
        self._node = plant.node(decision.node)
        node = plant.site.nodes[self._node]
        ids = {device.id: row for row, device in enumerate(node.devices, node.first)}
        unknown = [device for device in decision.devices if device not in ids]
        if unknown:
            raise Refused("unknown_target", f"node {node.name} has no device {unknown[0]!r}")
        self._rows = sorted(ids[device] for device in decision.devices) or list(ids.values())
        self._name, self._first = node.name, node.first
        if held := [row - node.first for row in self._rows if plant.placement.is_held(row)]:
            raise Refused("conflict", f"GPU {held[0]} of node {node.name} is in use; wait until it is empty")
        self._until_ns = plant.now_ns + round(CHECK_S * NS_PER_S)

    def expected(self, before: SubjectState) -> SubjectState:
        """The node is open."""
        return replace(before, suspended=False, version="")

    def begin(self) -> None:
        """Close the GPUs that are checked."""
        for row in self._rows:
            self._plant.placement.cordon(row)

    def advance(self) -> Progress:
        """When the check ends, uncordon the node, or report what is wrong."""
        plant, numbers = self._plant, ", ".join(str(row - self._first) for row in self._rows)
        gpus = f"GPU{'s' if len(self._rows) > 1 else ''} {numbers} of {self._name}"
        if plant.now_ns < self._until_ns:
            return Progress("running", f"{gpus}: a check of {CHECK_S:g} s is under way")
        wrong = [one for one in plant.faulty if one.row in self._rows]
        if wrong:
            description = "; ".join(f"GPU {one.row - self._first} {one.description}" for one in wrong)
            return Progress("failed", f"{self._name} is not well: {description}")
        for row in self._rows:
            plant.placement.uncordon(row)
        return Progress("done", f"{gpus}: well for {CHECK_S:g} s; the node takes work again")

    def supersede(self) -> bool:
        """Only a newer check counts."""
        return False
