"""Scale: another number of replicas, other resources for each, or other machines."""

import math
from collections import Counter
from typing import Annotated, Self

import msgspec

from flyball_contracts.records.commands.kinds.base import PLAIN, Decision, Wording
from flyball_contracts.records.commands.kinds.replicas import SetsReplicas, is_between
from flyball_contracts.records.commands.portion import Portion, allocation
from flyball_contracts.records.commands.resources import Resources
from flyball_contracts.records.commands.states import SubjectState
from flyball_contracts.records.workloads import WorkloadSpec


class Scale(SetsReplicas, tag="Scale", frozen=True, kw_only=True):
    """Set a workload's number of replicas; ``replicas_before`` is what the decision assumed.

    With ``resources`` it is vertical: the number stays, and each replica requests these instead of
    ``resources_before``. If that needs a restart, replicas restart one by one. One decision changes at most
    ``batch_size`` of the replicas that do not request them yet, and never more than the actuator's limits allow; later
    decisions change the rest. With ``mix`` the replicas are to run on these offers, in all as many as ``replicas`` less
    those on machines that no offer describes, which stay. Replicas stop once their replacements are ready. ``victims``
    name the machines of a pool that should go first; empty for the platform's choice.
    """

    power_limit_w: float | None = None
    resources: Resources | None = None
    resources_before: Resources | None = None
    batch_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    mix: tuple[Portion, ...] = ()
    victims: tuple[str, ...] = ()

    may_differ = SetsReplicas.may_differ | {"batch_size"}

    @property
    def subject(self) -> str:
        """A target's resources are another subject than its number of replicas."""
        return self.target if self.resources is None else f"{self.target}#"

    @property
    def besides(self) -> tuple[str, ...]:
        """Power limit, machines and resources."""
        values = self.power_limit_w, self.mix, self.resources
        words = "a power limit", "a choice of machines", "other resources"
        return tuple(what for what, value in zip(words, values, strict=True) if value)

    def invalid(self, spec: WorkloadSpec | None) -> str:
        """Error in the number, the resources or the mix."""
        if self.replicas_before < 0:
            return f"replicas_before is {self.replicas_before}; it must not be negative"
        if self.resources is not None:
            return self._invalid_resources(self.resources)
        return self.out_of_range(spec) or self._invalid_mix()

    def _invalid_resources(self, wanted: Resources) -> str:
        if self.replicas != self.replicas_before:
            return (
                f"resources come with {self.replicas} replicas instead of {self.replicas_before}; "
                "change one of the two at a time"
            )
        if wanted.cpu is None and wanted.memory_bytes is None and not wanted.gpu_profile:
            return "resources name nothing to change; give cpu, memory_bytes or gpu_profile"
        for name, value in (("cpu", wanted.cpu), ("memory_bytes", wanted.memory_bytes)):
            if value is not None and not 0 < value < math.inf:
                return f"resources.{name} is {value}; it must be positive"
        return ""

    def _invalid_mix(self) -> str:
        twice = [name for name, count in Counter(part.offer for part in self.mix).items() if count > 1]
        if twice:
            return f"mix names offer {min(twice)!r} twice; name each once"
        for part in self.mix:
            if (fewest := min(part.replicas, part.replicas_before)) < 0:
                return f"mix has {fewest} replicas of offer {part.offer!r}; numbers must not be negative"
        total = sum(part.replicas for part in self.mix)
        if self.mix and total > self.replicas:
            return f"mix has {total} replicas in all where the decision has {self.replicas}; it must not have more"
        return ""

    def conflict(self, observed: SubjectState, assumed: tuple[int, ...] = ()) -> str:
        """As for any change of the number; also if the shown resources are neither the previous nor the wanted ones."""
        problem = super().conflict(observed, assumed)
        if problem or self.resources is None or self.resources_before is None or observed.resources is None:
            return problem
        for name in Resources.__struct_fields__:
            wanted, was, shown = (getattr(r, name) for r in (self.resources, self.resources_before, observed.resources))
            if wanted is not None and was is not None and shown is not None and shown not in (was, wanted):
                return f"resources.{name} was taken to be {was}, but the platform shows {shown}"
        return ""

    def covers(self, other: Decision) -> bool:
        """As for any change of the number, and no larger batch."""
        return (
            super().covers(other)
            and isinstance(other, Scale)
            and (other.batch_size or math.inf) <= (self.batch_size or math.inf)
        )

    def is_step_to(self, wanted: Decision) -> bool:
        """As for any change of the number, with no other resources, power limit or machines."""
        if not super().is_step_to(wanted):
            return False
        if not isinstance(wanted, Scale):
            return self.resources is None and self.power_limit_w is None and not self.mix
        if self.resources != wanted.resources or self.power_limit_w not in (None, wanted.power_limit_w):
            return False
        by_offer = {part.offer: part.replicas for part in wanted.mix}
        return bool(self.mix) == bool(wanted.mix) and all(
            is_between(part.replicas_before, part.replicas, by_offer.get(part.offer, 0)) for part in self.mix
        )

    def stops(self, running: int, observed: SubjectState | None = None) -> int:
        """New resources restart all replicas, or a batch of them; replicas that change machines stop as well."""
        before = self.most_before(running, observed)
        if self.resources is not None:
            return min(max(before, 1), self.batch_size or before or 1)
        runs = {} if observed is None else {part.offer: part.replicas for part in observed.mix}
        was = ((max(part.replicas_before, runs.get(part.offer, 0)), part.replicas) for part in self.mix)
        moved = sum(max(0, n - left) for n, left in was)  # they stop, though others start
        return max(super().stops(running, observed), moved)

    @property
    def in_batches(self) -> bool:
        """New resources may come to some replicas first."""
        return self.resources is not None

    def part(self, replicas: int) -> Self:
        """New resources for at most that many replicas."""
        return msgspec.structs.replace(self, batch_size=replicas) if self.in_batches else self

    def starts_on(self, observed: SubjectState | None, *, keeps_to_node: bool) -> str | None:
        """Anywhere, if there are more replicas in all or on an offer."""
        more = [(self.replicas, self.starts_from(observed)), *((p.replicas, p.replicas_before) for p in self.mix)]
        if observed is not None and observed.mix:
            shown = {part.offer: part.replicas for part in observed.mix}
            more += ((part.replicas, shown.get(part.offer, 0)) for part in self.mix)
        return "" if any(after > before for after, before in more) else None

    def expected_state(self, observed: SubjectState) -> SubjectState:
        """The requested number of replicas, all ready, with the requested settings."""
        return SubjectState(
            replicas=self.replicas,
            ready=self.replicas,
            power_limit_w=self.power_limit_w,
            resources=self.resources,
            mix=self.mix,
        )

    def change(self, wording: Wording = PLAIN) -> str:
        """``4 → 6 replicas``, with power limit and machines, or the resources of each."""
        if self.resources is not None:
            batch = "" if self.batch_size is None else f", at most {self.batch_size} of them now"
            return f"{self.resources.change(self.resources_before)} for each of {self.replicas} replicas{batch}"
        limit = "" if self.power_limit_w is None else f", power limit {self.power_limit_w:g} W"
        mix = f", {allocation(self.mix)}" if self.mix else ""
        victims = f", {', '.join(self.victims)} first" if self.victims else ""
        return f"{self.count_text()}{limit}{mix}{victims}"
