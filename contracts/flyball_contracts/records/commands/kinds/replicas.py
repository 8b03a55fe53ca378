"""Common base of the kinds of decision that set a number of replicas."""

from typing import TYPE_CHECKING

from flyball_contracts.records.commands.kinds.base import Decision
from flyball_contracts.records.commands.states import SubjectState
from flyball_contracts.records.subjects import pool_of
from flyball_contracts.records.workloads import WorkloadSpec


class SetsReplicas(Decision, frozen=True, kw_only=True):
    """A decision after which ``replicas`` run; ``replicas_before`` is what it assumed."""

    replicas: int
    replicas_before: int
    if TYPE_CHECKING:
        victims: tuple[str, ...]  # each kind has it as its last field

    may_differ = frozenset({"replicas", "replicas_before", "victims"})

    @property
    def besides(self) -> tuple[str, ...]:
        """What it asks for besides a number, in words that follow ``cannot give it``."""
        return ()

    def starts_from(self, observed: SubjectState | None) -> int:
        """Replicas from which it starts: those observed, or fewer if it states fewer."""
        shown = None if observed is None else observed.ready if observed.replicas is None else observed.replicas
        return self.replicas_before if shown is None else min(shown, self.replicas_before)

    def most_before(self, running: int, observed: SubjectState | None) -> int:
        """The largest number of replicas before it that it assumes, that runs, or that the platform shows."""
        shown = (0, 0) if observed is None else (observed.replicas or 0, observed.ready or 0)
        return max(self.replicas_before, running, *shown)

    def conflict(self, observed: SubjectState, assumed: tuple[int, ...] = ()) -> str:
        """Compare with both requested and ready replicas: it may have assumed either, or a number in between.

        The changes of decisions that it replaces are part of its own.
        """
        shown = [n for n in (observed.replicas, observed.ready) if n is not None]
        before, after = self.replicas_before, self.replicas
        starts = [before]
        if after != before or not shown or after <= min(shown):  # a decision without a change has no cost of starts
            starts += assumed
        if not shown or any(_harmless(start, after, min(shown), max(shown)) for start in starts):
            return ""
        nearest = max(shown) if before > max(shown) else min(shown)
        change = after - nearest
        does = f"start {change}" if change > 0 else f"stop {-change}" if change < 0 else "change nothing"
        return f"from {before} to {after} replicas was decided, but the platform shows {nearest}: it would {does}"

    def covers(self, other: Decision) -> bool:
        """A number between the one before and the approved one; named victims are among the approved ones."""
        if not super().covers(other) or not isinstance(other, SetsReplicas):
            return False
        least, most = sorted((self.replicas_before, self.replicas))
        if not least <= other.replicas <= most:
            return False
        if other.replicas == self.replicas:
            return set(other.victims) == set(self.victims)
        going = other.replicas_before - other.replicas
        return not self.victims or (len(other.victims) == going and set(other.victims) <= set(self.victims))

    def is_step_to(self, wanted: Decision) -> bool:
        """A step towards the wanted number is a part of it; one away from it or beyond it is not."""
        return (
            isinstance(wanted, SetsReplicas)
            and is_between(self.replicas_before, self.replicas, wanted.replicas)
            and set(self.victims) <= set(wanted.victims)
        )

    def out_of_range(self, spec: WorkloadSpec | None) -> str:
        """Error in a number that its workload must not have; empty if there is none."""
        if spec is None or max(0, spec.min_replicas) <= self.replicas <= spec.max_replicas:
            return ""
        return (
            f"{self.replicas} replicas lie outside {spec.min_replicas} to {spec.max_replicas}, the range of workload "
            f"{spec.workload!r}; change its min_replicas or max_replicas"
        )

    def stops(self, running: int, observed: SubjectState | None = None) -> int:
        """Replicas above the number that is set."""
        return max(0, self.most_before(running, observed) - self.replicas)

    def count_text(self) -> str:
        """The change of the number, in a few words."""
        return f"{self.replicas_before} → {self.replicas} {'machines' if pool_of(self.workload) else 'replicas'}"


def is_between(before: int, after: int, wanted: int) -> bool:
    """Whether ``after`` is a step from ``before`` towards ``wanted``."""
    return min(before, wanted) <= after <= max(before, wanted)


def _harmless(before: int, after: int, least: int, most: int) -> bool:
    """Whether the change does what it states, or less, when ``least`` to ``most`` replicas are observed."""
    if least <= before <= most:
        return True
    return after <= most if before > most else after >= least
