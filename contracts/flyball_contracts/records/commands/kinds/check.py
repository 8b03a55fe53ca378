"""Check: a node is tried before it takes work again."""

from flyball_contracts.records.commands.kinds.base import PLAIN, Decision, Wording
from flyball_contracts.records.commands.states import SubjectState
from flyball_contracts.records.subjects import subject_of_node
from flyball_contracts.records.workloads import WorkloadSpec


class Check(Decision, tag="Check", frozen=True, kw_only=True):
    """Close a node if it is open, run a check on it, and open it if the check passes; if not, it stays closed.

    ``devices`` are the GPUs to check, on which nothing may run: the faulty ones and other free GPUs of the node; empty
    for all, where none is known. ``attempt`` counts the checks of the node since it was cordoned, from 1.
    """

    node: str
    devices: tuple[str, ...] = ()
    attempt: int = 1

    about = "node"
    may_differ = frozenset({"attempt"})

    @property
    def named_nodes(self) -> tuple[str, ...]:
        """The node."""
        return (self.node,)

    @property
    def named_devices(self) -> tuple[str, ...]:
        """The GPUs to check."""
        return self.devices

    def invalid(self, spec: WorkloadSpec | None) -> str:
        """Error in the node or the attempt."""
        if self.workload != subject_of_node(self.node):
            return (
                f"workload is {self.workload!r}; that of a check of node {self.node!r} is "
                f"{subject_of_node(self.node)!r}"
            )
        if self.attempt < 1:
            return f"attempt is {self.attempt}; checks are counted from 1"
        return ""

    def is_step_to(self, wanted: Decision) -> bool:
        """It checks the same GPUs."""
        return isinstance(wanted, Check) and self.devices == wanted.devices

    def expected_state(self, observed: SubjectState) -> SubjectState:
        """Nothing runs on the node, and it takes work."""
        return SubjectState(replicas=0, suspended=False)

    def change(self, wording: Wording = PLAIN) -> str:
        """``attempt 2``, with the GPUs."""
        devices = f", {', '.join(self.devices)}" if self.devices else ""
        return f"attempt {self.attempt}{devices}"
