"""Migrate: one replica leaves a device or a node."""

from flyball_contracts.records.commands.kinds.base import PLAIN, Decision, Urgency, Wording
from flyball_contracts.records.commands.states import SubjectState
from flyball_contracts.records.workloads import WorkloadSpec


class Migrate(Decision, tag="Migrate", frozen=True, kw_only=True):
    """Move one replica away from a device or node; an empty ``to_node`` leaves the choice to the scheduler."""

    replica: str
    from_node: str
    from_device: str
    to_node: str = ""

    @property
    def subject(self) -> str:
        """The place of one replica."""
        return f"{self.target}#{self.replica}"

    @property
    def named_replicas(self) -> tuple[str, ...]:
        """The replica that moves."""
        return (self.replica,)

    @property
    def named_nodes(self) -> tuple[str, ...]:
        """The node that it leaves, and the one to which it moves."""
        return (self.from_node, self.to_node) if self.to_node else (self.from_node,)

    @property
    def named_devices(self) -> tuple[str, ...]:
        """The device that it leaves."""
        return (self.from_device,) if self.from_device else ()

    @property
    def claimed_urgency(self) -> Urgency:
        """A rescue, if it leaves a device."""
        return "rescue" if self.from_device else "normal"

    def invalid(self, spec: WorkloadSpec | None) -> str:
        """Error in the replica or the nodes."""
        if not self.replica:
            return "replica is empty; a migration must name the replica that it moves"
        if self.to_node == self.from_node:
            return f"from_node and to_node are both {self.to_node!r}; leave to_node empty to let the scheduler choose"
        return ""

    def conflict(self, observed: SubjectState, assumed: tuple[int, ...] = ()) -> str:
        """The replica is elsewhere."""
        node = observed.nodes.get(self.replica)
        if node is None or node == self.from_node:
            return ""
        where = f"runs on {node!r}" if node else "is stopped"
        return f"replica {self.replica!r} {where}, not on {self.from_node!r} from where it should move"

    def is_step_to(self, wanted: Decision) -> bool:
        """It moves to the same node."""
        return isinstance(wanted, Migrate) and self.to_node == wanted.to_node

    def stops(self, running: int, observed: SubjectState | None = None) -> int:
        """The replica, and all replicas that move with it according to the platform."""
        return 1 if observed is None else max(1, len(observed.nodes))

    def starts_on(self, observed: SubjectState | None, *, keeps_to_node: bool) -> str | None:
        """On the node that it names."""
        return self.to_node if keeps_to_node else ""

    def expected_state(self, observed: SubjectState) -> SubjectState:
        """The same number of replicas, and this one on its new node."""
        nodes = {self.replica: self.to_node} if self.to_node else {}
        return SubjectState(replicas=observed.replicas, ready=observed.ready, nodes=nodes)

    def change(self, wording: Wording = PLAIN) -> str:
        """``chat-0: GPU-1 of n1 → n2``."""
        source = wording.device(self.from_device, self.from_node) if self.from_device else self.from_node
        return f"{self.replica}: {source} → {self.to_node or 'another node'}"
