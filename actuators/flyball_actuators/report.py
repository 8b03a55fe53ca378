"""What an actuator did in one run."""

from collections import Counter
from dataclasses import dataclass, field

from flyball_contracts.records import Outcome


@dataclass
class ActuatorReport:
    """Counts of one run.

    ``decisions`` were read and decoded, ``undecodable`` went to the dead letters. ``statuses`` and ``refusals`` count
    the final outcomes that this actuator was the first to publish, by status and by refusal code; ``unreadable_world``
    counts skipped workloads, inventories, orders and outcomes, and ``breakers_opened`` how often a platform was found
    not to answer.
    """

    decisions: int = 0
    undecodable: int = 0
    statuses: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    delivered: int = 0
    commits: int = 0
    commit_failures: int = 0
    unreadable_world: int = 0
    breakers_opened: int = 0

    def count(self, outcome: Outcome) -> None:
        """Count one final outcome."""
        self.statuses[outcome.status] += 1
        if outcome.status == "refused":
            self.refusals[outcome.code] += 1
