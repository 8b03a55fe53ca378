"""Decisions, the outcomes of each, and groups of repeated ones."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Literal

from flyball_contracts.records import AnyDecision, Outcome
from flyball_contracts.records.commands.outcomes import Mode
from flyball_contracts.tables import supersedes
from flyball_streams.dashboard.state.bounded import Bounded

MAX_DECISIONS = 2_000
Verdict = Literal["awaiting", "accepted", "running", "done", "failed", "refused", "superseded", "planned"]
VERDICTS: tuple[Verdict, ...] = (
    "awaiting", "accepted", "running", "done", "planned", "failed", "refused", "superseded",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """Decisions of one kind about one subject, the newest first."""

    kind: str
    cell: str
    workload: str
    decisions: tuple[AnyDecision, ...]
    verdicts: Counter[Verdict]

    @property
    def key(self) -> str:
        """Key of the group while it exists."""
        return f"{self.kind}|{self.cell}|{self.workload}"

    @property
    def newest(self) -> AnyDecision:
        """The decision that represents the group."""
        return self.decisions[0]

    @property
    def span_ns(self) -> tuple[int, int]:
        """Event times of the oldest and the newest."""
        return self.decisions[-1].time_ns, self.decisions[0].time_ns


@dataclass(slots=True)
class _Life:
    """All outcomes of a decision by id, and the final one."""

    last: Outcome
    steps: dict[str, Outcome]


class Journal:
    """The newest decisions with the outcomes of each; records come in any order, and repeatedly.

    When the page starts, one partition comes after another, so what came last is not what is newest.
    """

    def __init__(self) -> None:
        self.decisions: Bounded[str, AnyDecision] = Bounded(MAX_DECISIONS, lambda decision: decision.time_ns)
        self.kinds: Counter[str] = Counter()
        self.verdicts: Counter[Verdict] = Counter()
        self.modes: dict[str, Mode] = {}
        self._mode_ns: dict[str, int] = {}
        self._lives: Bounded[str, _Life] = Bounded(MAX_DECISIONS, lambda life: life.last.time_ns)

    def decide(self, decision: AnyDecision) -> None:
        """Add a decision; a replayed one is the same decision."""
        if decision.id in self.decisions:
            return
        self.kinds[type(decision).__name__] += 1
        self.decisions[decision.id] = decision
        self.verdicts["awaiting"] += decision.id not in self._lives

    def add(self, outcome: Outcome) -> None:
        """Add one outcome."""
        life = self._lives.get(outcome.decision)
        if life is None:
            self._lives[outcome.decision] = _Life(outcome, {outcome.id: outcome})
            self.verdicts["awaiting"] -= outcome.decision in self.decisions
            self.verdicts[verdict(outcome)] += 1
        else:
            life.steps[outcome.id] = outcome
            if supersedes(outcome, life.last):
                self.verdicts[verdict(life.last)] -= 1
                self.verdicts[verdict(outcome)] += 1
                life.last = outcome
        if outcome.time_ns >= self._mode_ns.get(outcome.cell, 0):
            self.modes[outcome.cell], self._mode_ns[outcome.cell] = outcome.mode, outcome.time_ns

    def life(self, decision: str) -> list[Outcome]:
        """All outcomes of a decision, in the order in which they supersede each other."""
        life = self._lives.get(decision)
        return sorted(life.steps.values(), key=cmp_to_key(_compare)) if life is not None else []

    def outcome(self, decision: str) -> Outcome | None:
        """The newest outcome of a decision."""
        life = self._lives.get(decision)
        return life.last if life is not None else None

    def newest(self, wanted: Callable[[AnyDecision], bool] = lambda _: True) -> list[AnyDecision]:
        """Decisions by event time, newest first."""
        return sorted((d for d in self.decisions.values() if wanted(d)), key=lambda d: (-d.time_ns, d.id))

    def groups(self, decisions: Iterable[AnyDecision], shown: Verdict | None = None) -> list[Group]:
        """Group repeated decisions: the same kind about the same workload. Expects the newest first."""
        found: dict[tuple[str, str, str], list[tuple[AnyDecision, Verdict]]] = {}
        for decision in decisions:
            word = verdict(self.outcome(decision.id))
            if shown is None or word == shown:
                key = (type(decision).__name__, decision.cell, decision.workload or decision.target)
                found.setdefault(key, []).append((decision, word))
        return [
            Group(*key, tuple(decision for decision, _ in members), Counter(word for _, word in members))
            for key, members in found.items()
        ]

    def mode(self, setting: str) -> str:
        """Mode of the actuator by its outcomes, or its setting; ``dry_run`` if any cell runs in it."""
        modes = set(self.modes.values())
        return next((mode for mode in ("dry_run", "live", "off") if mode in modes), setting)


def _compare(one: Outcome, other: Outcome) -> int:
    return supersedes(one, other) - supersedes(other, one)


def verdict(outcome: Outcome | None) -> Verdict:
    """Summary of a decision's outcome; a dry run is never ``done``."""
    if outcome is None:
        return "awaiting"
    return "planned" if outcome.mode == "dry_run" and outcome.status == "done" else outcome.status
