"""A node as ``scontrol -o show node`` shows it: whether jobs may start there, and who has drained it.

The agent of a node and the actuator read it alike.
"""

import re
from typing import NamedTuple

from flyball_contracts.records.inventory import CordonState

OURS = "flyball"
"""Beginning of the reason of a node that Flyball has drained."""
_CLOSED = ("DRAIN", "DOWN", "FAIL", "MAINT")
_STATE = re.compile(r"\bState=(\S+)")
_REASON = re.compile(r"\bReason=(.*?)(?: \[\S+@\S+\])?\s*(?:$| [A-Z]\w+=)")


class SlurmNode(NamedTuple):
    """State of a node in Slurm's words, such as ``IDLE+DRAIN``, and the reason why it is closed."""

    state: str
    reason: str

    @property
    def takes_jobs(self) -> bool:
        """Whether new jobs may start there."""
        return not any(word in self.state for word in _CLOSED)

    @property
    def cordon(self) -> CordonState:
        """Who has drained the node."""
        if "DRAIN" not in self.state:
            return ""
        return "flyball" if self.reason.startswith(OURS) else "other"


def node_of(output: str) -> SlurmNode | None:
    """The node in the output of the command; ``None`` if there is none."""
    state, reason = _STATE.search(output), _REASON.search(output)
    return None if state is None else SlurmNode(state[1], reason[1] if reason else "")
