"""When a node that is out is checked, and what came of it: a check that passes is evidence that the node is well.

A node is checked once nothing runs on it and nothing new was seen of it for a while. Where the check fails, is refused
or comes to nothing, the next one waits, twice as long each time. What a dry run planned has checked nothing.
"""

import msgspec

from flyball_contracts.ids import NS_PER_S, decision_id
from flyball_contracts.records import Check, Evidence, Outcome
from flyball_contracts.records.nodes import subject_of_node
from flyball_streams.engine.cell.cycle import POLICY

AGAIN_S, LONGEST_S = 600.0, 86_400.0
UNDER_WAY_S = 3_600.0
"""A check of which nothing more is heard for so long is not believed to end."""
MOST_CITED = 16


class NodeCheck(msgspec.Struct):
    """The checks of one node since it is out: the last one, ``decision``, was made at ``decided_ns``.

    It is believed to be under way until ``until_ns``, and there is none before ``next_ns``. ``passed`` is what it found
    where the node is well.
    """

    decision: str = ""
    decided_ns: int = 0
    until_ns: int = 0
    next_ns: int = 0
    attempts: int = 0
    passed: str = ""

    def is_under_way(self, now_ns: int) -> bool:
        """Whether a check was asked for, and may end yet."""
        return bool(self.decision) and self.decided_ns <= now_ns < self.until_ns

    def is_due(self, now_ns: int, quiet_ns: int) -> bool:
        """Whether a node of which nothing new was seen since ``quiet_ns``, the wait included, is to be checked."""
        return not self.is_under_way(now_ns) and now_ns >= max(self.next_ns, quiet_ns)

    def ask(
        self, cell: str, node: str, devices: tuple[str, ...], incidents: tuple[str, ...], now_ns: int, lives_ns: int
    ) -> Check:
        """The decision to check the node now."""
        subject, self.attempts = subject_of_node(node), self.attempts + 1
        self.decision, self.decided_ns = decision_id(cell, subject, now_ns), now_ns
        self.until_ns, self.passed = now_ns + lives_ns, ""
        self.next_ns = now_ns + lives_ns + self._wait_ns()
        what = f"{len(devices)} GPU{'s' if len(devices) > 1 else ''} of node {node}" if devices else f"node {node}"
        again = f" again, attempt {self.attempts}" if self.attempts > 1 else ""
        return Check(
            id=self.decision, target=f"{cell}/{subject}", cell=cell, workload=subject, time_ns=now_ns,
            expires_ns=now_ns + lives_ns, confidence=1.0, policy=POLICY, node=node, devices=devices,
            attempt=self.attempts,
            reason=f"Check {what}{again}: it is out and empty, and nothing new was seen of it; it takes work again if "
            "it passes.",
            evidence=tuple(Evidence(name="incident", value=1.0, record=name) for name in incidents[:MOST_CITED]),
        )  # fmt: skip

    def heed(self, outcome: Outcome) -> str:
        """Take what became of the last check; what there is to say of it, empty while it goes on."""
        if outcome.decision != self.decision:
            return ""
        if not outcome.final:
            self.until_ns = outcome.time_ns + round(UNDER_WAY_S * NS_PER_S)
            return ""
        self.until_ns, self.next_ns = 0, outcome.time_ns + self._wait_ns()
        words = outcome.detail or outcome.answer or outcome.status
        if outcome.status == "done":
            self.passed = outcome.answer or words
            return ""
        if outcome.status == "planned":
            return f"check {self.attempts} was planned only, in dry run: {words}"
        ended = "failed" if outcome.status == "failed" else f"was {outcome.status}"
        return f"check {self.attempts} {ended}: {words}"

    def _wait_ns(self) -> int:
        return round(min(AGAIN_S * 2.0 ** min(self.attempts - 1, 20), LONGEST_S) * NS_PER_S)
