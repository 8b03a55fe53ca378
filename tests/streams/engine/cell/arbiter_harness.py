"""Test harness: one arbiter with its tables, proposals and outcomes."""

from collections.abc import Mapping
from typing import Any

import msgspec
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.scene import CELL, CONFIG, START_NS, inventory, tick

from flyball_contracts.records import Allocation, AnyDecision, Inventory, Outcome, Proposal, Record
from flyball_contracts.records.commands.outcomes import OutcomeStatus, RefusalCode
from flyball_streams.engine import Directory
from flyball_streams.engine.cell.arbiter import Arbiter

SIZING = msgspec.structs.replace(CONFIG.sizing, reversal_cooldown_s=30.0, cooldown_s=5.0)
QUICK = msgspec.structs.replace(CONFIG, sizing=SIZING, decision_ttl_s=60.0, decision_interval_s=0.0)


class ArbiterHarness:
    """One arbiter and its tables."""

    def __init__(self, *records: Record) -> None:
        self.directory = Directory()
        self.arbiter = Arbiter(CELL, QUICK, self.directory)
        self.know(*records)

    def know(self, *records: Record) -> None:
        for record in records:
            self.directory.apply(record)

    def at(self, index: int, *proposals: Proposal) -> list[AnyDecision]:
        return list(self.arbiter.decide(tick(index), list(proposals)))

    def want(self, index: int, workload: str, replicas: int, **changes: Any) -> list[AnyDecision]:
        return self.at(index, proposal(workload, tick(index), replicas, **changes))

    def report(self, decision: AnyDecision, status: OutcomeStatus, **more: Any) -> None:
        """Report an outcome of a decision."""
        self.arbiter.receive(outcome(decision, status, **more))

    def refuse(self, decision: AnyDecision, code: RefusalCode = "") -> None:
        self.report(decision, "refused", code=code)


def node(
    name: str, gpus: int, held: Mapping[str, tuple[int, ...]] | None = None, epoch: int = 1, **more: Any
) -> Inventory:
    """A node; ``held`` maps ``workload/replica`` to rows."""
    parts = [
        Allocation(workload=key.split("/")[0], replica=key.split("/")[1], devices=rows)
        for key, rows in (held or {}).items()
    ]
    return inventory(name, gpus, parts, epoch=epoch, time_ns=START_NS + epoch, **more)


def move(index: int, workload: str, replica: str, at: str, row: int, confidence: float = 0.95) -> Proposal:
    """A replica is to leave a device that fails, or one that straggles where there is less confidence."""
    return proposal(
        workload, tick(index), 0, row, "migrate", replica=replica, node=at, device=f"{at}/{row}",
        observed_replicas=None, confidence=confidence,
    )  # fmt: skip


def outcome(decision: AnyDecision, status: OutcomeStatus, **more: Any) -> Outcome:
    """An outcome of a decision."""
    given: dict[str, Any] = {"mode": "live", "time_ns": decision.time_ns, "driver": "test"}
    return Outcome(
        id="o", decision=decision.id, type=type(decision).__name__,  # type: ignore[arg-type]
        target=decision.target, cell=decision.cell,
        workload=decision.workload, status=status, **(given | more),
    )  # fmt: skip
