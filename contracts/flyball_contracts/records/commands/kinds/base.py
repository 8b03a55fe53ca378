"""Common base of all kinds of decision: the common fields, and what readers need to know of each kind.

A decision is a proposal with an explanation: the actuator alone acts.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, NamedTuple, Self

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records.base import Evidence, Part, Record, TimeNs
from flyball_contracts.records.commands.states import SubjectState
from flyball_contracts.records.workloads import WorkloadSpec

Urgency = Literal["rescue", "normal", "deferral"]
"""A ``rescue`` leaves a failing device, a ``deferral`` stops work until a better time, all else is ``normal``."""


def utc(time_ns: int) -> str:
    """A time in UTC, to the second."""
    return f"{datetime.fromtimestamp(time_ns // NS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC"


class Effect(Part, frozen=True, kw_only=True):
    """Expected change by the decision, compared later with the observed one; ``None``: not estimated.

    ``slo`` is the expected change of the share of requests within their objective.
    """

    cost_usd_per_hour: float | None = None
    carbon_g_per_hour: float | None = None
    power_w: float | None = None
    gpus: float | None = None
    slo: float | None = None


class Wording(NamedTuple):
    """How a reader writes times (ns since the epoch) and devices (by id and node)."""

    clock: Callable[[int], str] = utc
    device: Callable[[str, str], str] = lambda device, node: f"{device} of {node}"


PLAIN = Wording()


class Decision(Record, tag_field="type", frozen=True, kw_only=True):
    """Common fields of all commands.

    ``id`` is the idempotency key: the same decision, replayed, has the same id. ``target`` is what a driver acts
    on. ``expires_ns`` is the time after which it must not be carried out. A ``Scale`` of a pool of machines has
    ``pool:NAME`` as its ``workload``, and its replicas are machines; a ``Check`` has ``node:NAME``.
    """

    id: str
    target: str
    cell: str
    workload: str
    time_ns: TimeNs
    expires_ns: TimeNs
    reason: str
    confidence: float
    policy: str
    evidence: tuple[Evidence, ...] = ()
    expected: Effect = Effect()

    about: ClassVar[Literal["workload", "node"]] = "workload"
    """What a decision of this kind is about; a workload may also be a pool."""
    may_differ: ClassVar[frozenset[str]] = frozenset()
    """Fields in which a decision may differ from the one that was approved; see :meth:`covers`."""

    # What it is about

    @property
    def subject(self) -> str:
        """The target, or the part of it that this decision is about; a newer decision on it supersedes this one."""
        return self.target

    @property
    def named_replicas(self) -> tuple[str, ...]:
        """Replicas that it names; they must be its workload's own."""
        return ()

    @property
    def named_nodes(self) -> tuple[str, ...]:
        """Nodes that it names; they must be known in its cell."""
        return ()

    @property
    def named_devices(self) -> tuple[str, ...]:
        """Devices that it names."""
        return ()

    @property
    def claimed_urgency(self) -> Urgency:
        """Urgency that it claims; the guard asks for proof."""
        return "normal"

    def content(self, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
        """Its kind's own fields, which say what it does."""
        own = self.__struct_fields__[len(Decision.__struct_fields__) :]
        return {name: getattr(self, name) for name in own if name not in without}

    # What must hold

    def invalid(self, spec: WorkloadSpec | None) -> str:
        """Error in a decision that contradicts its workload's specification or itself, with the remedy; empty: none.

        ``spec`` is given if it is about a workload.
        """
        return ""

    def conflict(self, observed: SubjectState, assumed: tuple[int, ...] = ()) -> str:
        """Why it would do the opposite of what it states, or more, on the ``observed`` state; empty if it would not.

        ``assumed`` are the starting numbers of replicas of decisions that it replaces before they were submitted.
        """
        return ""

    def covers(self, other: "Decision") -> bool:
        """Whether approval of this decision covers ``other``: the same on the same subject, and no more of it."""
        return (
            type(self) is type(other)
            and (self.cell, self.target) == (other.cell, other.target)
            and self.content(without=self.may_differ) == other.content(without=self.may_differ)
        )

    def is_step_to(self, wanted: "Decision") -> bool:
        """Whether it does a part of what a newer decision on its subject wants, and nothing else."""
        return type(self) is type(wanted) and self.content() == wanted.content()

    # What it does

    def stops(self, running: int, observed: SubjectState | None = None) -> int:
        """Replicas that stop because of it, by the largest of the assumed, running and shown numbers.

        So a decision on stale data cannot take away more than it states.
        """
        return 0

    @property
    def in_batches(self) -> bool:
        """Whether the platform may carry out part of it and leave the rest to later decisions."""
        return False

    def part(self, replicas: int) -> Self:
        """The decision for at most that many replicas, if it can be carried out in batches."""
        return self

    def starts_on(self, observed: SubjectState | None, *, keeps_to_node: bool) -> str | None:
        """Node on which it starts a replica, empty if the platform may choose one; ``None`` if it starts none.

        ``keeps_to_node``: a replica comes to the node that the decision names, or is not started.
        """
        return None

    def expected_state(self, observed: SubjectState) -> SubjectState:
        """State that the platform should show once it has carried it out."""
        raise NotImplementedError

    # How it is described

    def change(self, wording: Wording = PLAIN) -> str:
        """What it changes, in a few words, without its kind and target."""
        raise NotImplementedError

    def sentence(self) -> str:
        """What it does, as a command in one sentence without a full stop."""
        return f"{type(self).__name__.lower()} {self.target}: {self.change()}"
