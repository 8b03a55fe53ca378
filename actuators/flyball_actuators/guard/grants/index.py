"""All grants of a cell that a limit may count, indexed by what limits count by."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from flyball_actuators.guard.grants.grant import Grant
from flyball_actuators.guard.grants.kept import KeptGrants, remove_end
from flyball_actuators.guard.grants.recent import RecentGrants
from flyball_contracts.records.commands.kinds.base import Urgency

Key = tuple[str, ...]
_UNNAMED: Key = ("unnamed",)


class GrantIndex(KeptGrants):
    """Grants by urgency, target, workload and tenant; :attr:`recent` are those that inventories may not show yet."""

    def __init__(self) -> None:
        super().__init__()
        self.recent = RecentGrants()

    def has(self, decision: str) -> bool:
        """Whether a decision has a grant here."""
        return decision in self._decisions

    def of_urgency(self, urgency: Urgency, target: str | None = None) -> Sequence[Grant]:
        """Grants of one urgency, of all targets or of one."""
        return self._by.get(("urgency", urgency) if target is None else ("urgency", urgency, target), ())

    def of(self, per: Literal["target", "workload", "tenant"], name: str) -> Sequence[Grant]:
        """Grants of a target, workload or tenant, and grants of older versions, which recorded no workload.

        At equal times, grants without a workload come first.
        """
        named, unnamed = self._by.get((per, name), ()), self._by.get(_UNNAMED, ())
        return sorted([*unnamed, *named], key=lambda grant: grant.at_ns) if unnamed else named

    def _clear(self) -> None:
        self._by: dict[Key, list[Grant]] = defaultdict(list)
        self._decisions: Counter[str] = Counter()

    def _add(self, grant: Grant) -> None:
        self._decisions[grant.decision] += 1
        for key in self._keys(grant):
            self._by[key].append(grant)

    def _drop(self, grant: Grant) -> None:
        self._decisions[grant.decision] -= 1
        if not self._decisions[grant.decision]:
            del self._decisions[grant.decision]
        for key in self._keys(grant):
            remove_end(self._by[key], grant)
            if not self._by[key]:
                del self._by[key]

    def _keys(self, grant: Grant) -> Iterator[Key]:
        yield "urgency", grant.urgency
        yield "urgency", grant.urgency, grant.target
        if not grant.workload:
            yield _UNNAMED
            return
        yield "target", grant.target
        yield "workload", grant.workload
        yield "tenant", self._of(grant)[0]
