"""When a quarantined node is checked, and the result: a check that passes is evidence that the node is healthy.

A node is checked once nothing runs on it and it has shown no new symptom for a while. If the check fails, is refused
or has no result, the next one waits, twice as long each time. A check in dry run is no evidence.
"""

import msgspec

from flyball_contracts.ids import NS_PER_S, decision_id
from flyball_contracts.records import Check, Evidence, Outcome
from flyball_contracts.records.subjects import subject_of_node
from flyball_streams.engine.cell.cycle import POLICY

AGAIN_S, LONGEST_S = 600.0, 86_400.0
UNDER_WAY_S = 3_600.0
"""A check without a new outcome for this long counts as lost."""
MOST_CITED = 16


class NodeCheck(msgspec.Struct):
    """The checks of one node since it was cordoned; the last one is ``decision``, made at ``decided_ns``.

    It counts as under way until ``until_ns``, and the next one starts no earlier than ``next_ns``. ``passed`` is the
    result of a check that passed, else empty.
    """

    decision: str = ""
    decided_ns: int = 0
    until_ns: int = 0
    next_ns: int = 0
    attempts: int = 0
    passed: str = ""

    def is_under_way(self, now_ns: int) -> bool:
        """Whether a check was requested and may still end."""
        return bool(self.decision) and self.decided_ns <= now_ns < self.until_ns

    def is_due(self, now_ns: int, quiet_ns: int) -> bool:
        """Whether the node may be checked now; ``quiet_ns`` is when it has been without symptoms for long enough."""
        return not self.is_under_way(now_ns) and now_ns >= max(self.next_ns, quiet_ns)

    def start(
        self,
        cell: str,
        node: str,
        devices: tuple[str, ...],
        incidents: tuple[str, ...],
        now_ns: int,
        lives_ns: int,
        why: str = "",
    ) -> Check:
        """Return the decision to check the node now; ``devices`` are those to check, none for all of them.

        ``why`` it is checked, if not because it is cordoned.
        """
        subject, self.attempts = subject_of_node(node), self.attempts + 1
        self.decision, self.decided_ns = decision_id(cell, subject, now_ns), now_ns
        self.until_ns, self.passed = now_ns + lives_ns, ""
        self.next_ns = now_ns + lives_ns + self._wait_ns()
        what = f"{len(devices)} GPU{'s' if len(devices) > 1 else ''} of node {node}" if devices else f"node {node}"
        again = f" again, attempt {self.attempts}" if self.attempts > 1 else ""
        why = why or (
            "those at fault are cordoned and empty, and have no new symptom; they take work again if all pass"
            if devices
            else "it is cordoned and empty, and has no new symptom; it takes work again if it passes"
        )
        return Check(
            id=self.decision, target=f"{cell}/{subject}", cell=cell, workload=subject, time_ns=now_ns,
            expires_ns=now_ns + lives_ns, confidence=1.0, policy=POLICY, node=node, devices=devices,
            attempt=self.attempts,
            reason=f"Check {what}{again}: {why}.",
            evidence=tuple(Evidence(name="incident", value=1.0, record=name) for name in incidents[:MOST_CITED]),
        )  # fmt: skip

    def receive(self, outcome: Outcome) -> str:
        """Apply an outcome of the last check; return why the node stays out, empty if the check passed or continues."""
        if outcome.decision != self.decision:
            return ""
        if not outcome.final:
            self.until_ns = outcome.time_ns + round(UNDER_WAY_S * NS_PER_S)
            return ""
        self.until_ns, self.next_ns = 0, outcome.time_ns + self._wait_ns()
        detail = outcome.detail or outcome.answer or outcome.status
        if outcome.status == "done":
            self.passed = outcome.answer or detail
            return ""
        if outcome.status == "planned":
            return f"check {self.attempts} was planned only, in dry run: {detail}"
        ended = "failed" if outcome.status == "failed" else f"was {outcome.status}"
        return f"check {self.attempts} {ended}: {detail}"

    def _wait_ns(self) -> int:
        return round(min(AGAIN_S * 2.0 ** min(self.attempts - 1, 20), LONGEST_S) * NS_PER_S)
