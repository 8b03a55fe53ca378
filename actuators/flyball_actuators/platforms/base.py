"""The platform interface: the actuator's calls to the system that runs the workloads.

The service calls ``observe``, then ``submit``, then ``poll``. An operation may take minutes; it is done when the
platform *shows* the effect. The service calls from several threads, with at most one submission at a time per target.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from flyball_contracts.errors import TransportError
from flyball_contracts.records import AnyDecision, SubjectState
from flyball_contracts.records.commands.outcomes import RefusalCode

Subject = Literal["workload", "pool", "node"]


class PlatformError(TransportError):
    """The platform did not answer, or its answer could not be read; the effect of the call is unknown."""


class Promises(NamedTuple):
    """How a platform carries out decisions.

    ``dry_run``: the ``platform`` itself validates a dry run, or the ``driver`` does, on the observed state.
    ``victims``: the replicas that a decision names are the ones that stop. ``checkpoint``: the replica confirms its
    checkpoint before it stops (``confirmed``), the ``platform`` makes the checkpoint, or the replica only receives the
    request (``asked``). ``load``: a replica that is ``labelled`` for it loses its load before it stops; all other
    replicas stop with the platform's grace period. ``rollback``: a failed operation is undone, up to a point of no
    return. ``gang``: replicas of one gang start and stop together. ``scrub``: the memory of a GPU is cleared before
    another tenant gets it. ``node``: a replica that moves starts on the node that the decision names, or not at all;
    otherwise a scheduler may choose another node.
    """

    dry_run: Literal["platform", "driver"] = "driver"
    victims: bool = False
    checkpoint: Literal["confirmed", "platform", "asked", "none"] = "none"
    load: Literal["labelled", "none"] = "none"
    rollback: bool = False
    gang: bool = False
    scrub: bool = False
    node: bool = False


class Capabilities(NamedTuple):
    """Capabilities of a platform.

    ``kinds`` are the types of decision it can carry out; an empty set means that it can only plan. ``tracks``: it finds
    operations by the id of their decision, so submitting the same id again changes nothing, and :meth:`Platform.find`
    reports whether the decision was ever submitted. ``about`` are the subjects it handles: workloads, pools of
    machines, nodes. ``promises`` describe how it carries decisions out.
    """

    kinds: frozenset[str]
    tracks: bool
    about: frozenset[Subject] = frozenset({"workload"})
    promises: Promises = Promises()


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that the platform accepted.

    ``operation`` is the platform's name for it, empty in a dry run; ``expected`` is the state that the platform should
    show once it is done; ``answer`` is the platform's own message.
    """

    operation: str
    expected: SubjectState
    answer: str = ""


class Rejected(NamedTuple):
    """The platform refused the decision and changed nothing; ``detail`` ends with the remedy.

    ``unsuitable_nodes`` are nodes on which the work may not run.
    """

    code: RefusalCode
    detail: str
    unsuitable_nodes: tuple[str, ...] = ()


class Held(NamedTuple):
    """Something that a platform holds for a decision since ``since_ns``; ``name`` is the platform's name of it."""

    decision: str
    name: str
    since_ns: int


class Running(NamedTuple):
    """The operation is still in progress."""

    answer: str = ""


class Done(NamedTuple):
    """The platform has shown ``observed`` since ``at_ns``."""

    observed: SubjectState
    at_ns: int
    answer: str = ""


class Failed(NamedTuple):
    """The platform gave up; ``observed`` is its current state, where it reports one."""

    answer: str
    observed: SubjectState | None = None


class Superseded(NamedTuple):
    """The platform gave up because of a newer change to the same subject."""

    answer: str
    observed: SubjectState | None = None


Progress = Running | Done | Failed | Superseded


class Platform(Protocol):
    """One platform that runs one or more cells."""

    @property
    def name(self) -> str:
        """Name in the configuration and in outcomes."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the platform; constant for the life of the process."""
        ...

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """State of the decision's subject now; ``Rejected`` if the platform does not know the subject.

        Retry contract: reads only. The service repeats it after a :class:`PlatformError` until the decision expires.
        """
        ...

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Start to carry out the decision if its subject is still as ``observed``; do not wait for the effect.

        With ``dry_run`` everything is checked on the real state and nothing is changed.

        Retry contract: called at most once per decision, unless it returned ``Rejected`` with code ``conflict``, which
        changes nothing. After a :class:`PlatformError`, or a crash during the call, the outcome is unknown: if the
        platform ``tracks``, the service calls :meth:`find` and submits again only if the decision was never submitted;
        otherwise the decision fails with an unknown outcome. Within one call a driver may repeat only what the platform
        makes safe to repeat: a call with a request token, or an absolute value under a version.
        """
        ...

    def poll(self, handle: Handle) -> Progress:
        """Return the progress of an operation.

        Retry contract: reads, and may advance the operation by steps that are safe to repeat, such as an eviction that
        waits for its disruption budget; returns the same final result from then on. Repeated after a
        :class:`PlatformError`. A handle survives a restart, so ``poll`` may need nothing but its ``operation`` and
        ``expected``.
        """
        ...

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """Return the operation of a decision that may have been submitted; ``None`` means it certainly was not.

        ``observed`` is the state on which the decision was claimed, ``None`` if unknown.

        Retry contract: reads only. Called only if the platform ``tracks``.
        """
        ...


@runtime_checkable
class Abandoning(Protocol):
    """A platform whose operations hold something and must give it back when a newer decision overtakes them."""

    def abandon(self, handle: Handle) -> Progress:
        """Return the progress of an overtaken operation, as ``poll`` does; give back what it holds unless it has ended.

        Retry contract: as ``poll``.
        """
        ...

    def held(self) -> Iterable[Held]:
        """All that decisions hold on the platform.

        Reads only. Raises :class:`PlatformError` after it has returned all that could be read.
        """
        ...

    def give_back(self, thing: Held) -> bool:
        """Give back what a decision that has ended still holds; return whether it still held it.

        Retry contract: safe to repeat, also by several processes at once. Anything that another client has taken since
        stays as it is.
        """
        ...


@runtime_checkable
class TakingBack(Protocol):
    """A platform whose operations prepare work before it goes, and can be undone until then."""

    def take_back(self, handle: Handle) -> Progress | None:
        """Undo an operation that has stopped nothing yet; ``Failed`` once it is undone, ``Running`` before.

        ``None`` if the operation has stopped something, or prepares nothing: then it goes on, by ``poll``.

        Retry contract: as ``poll``.
        """
        ...


@runtime_checkable
class Serving(Protocol):
    """A platform that runs a server or a controller for as long as the actuator runs."""

    def close(self) -> None:
        """Stop serving."""
        ...
