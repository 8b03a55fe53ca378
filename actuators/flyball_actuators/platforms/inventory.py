"""Plans on the inventories that agents publish; it cannot change anything."""

from collections.abc import Callable, Mapping

from flyball_actuators.platforms.base import Capabilities, Failed, Handle, Progress, Rejected
from flyball_contracts.records import AnyDecision, SubjectState

ReplicaNodes = Callable[[str, str], Mapping[str, str]]
"""Returns the node of each replica of a workload in a cell, as the inventories show them."""


class InventoryPlatform:
    """The platform for cells that no other platform is configured for."""

    name = "inventory"
    capabilities = Capabilities(kinds=frozenset(), tracks=True, about=frozenset({"workload", "pool", "node"}))

    def __init__(self, replica_nodes: ReplicaNodes) -> None:
        self._replica_nodes = replica_nodes

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """Replicas and their nodes; an empty state for a workload that no inventory shows."""
        replica_nodes = self._replica_nodes(decision.cell, decision.workload)
        if not replica_nodes:
            return SubjectState()
        named = decision.named_replicas
        return SubjectState(
            replicas=len(replica_nodes),
            ready=len(replica_nodes),
            nodes={name: replica_nodes[name] for name in named if name in replica_nodes},
        )

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Describe what would be done; a live submission is refused."""
        if not dry_run:
            return Rejected("unsupported", "platform inventory can plan, not act; name another in actuator.platforms")
        answer = f"would {decision.sentence()}; nothing was changed"
        return Handle(operation="", expected=decision.expected_state(observed), answer=answer)

    def poll(self, handle: Handle) -> Progress:
        """Always failed: nothing was ever submitted."""
        return Failed(f"platform inventory has no operation {handle.operation!r}")

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """Always ``None``: nothing was ever submitted."""
        return None
