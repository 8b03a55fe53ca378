"""The platform port: what the actuator asks of whatever runs the workloads.

``observe -> submit -> poll``. An operation may take minutes; it is done when the platform *shows* the effect. The
service calls from several threads, at most one submission at a time for each target.
"""

from typing import Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from flyball_contracts.errors import TransportError
from flyball_contracts.records import AnyDecision, SubjectState
from flyball_contracts.records.commands.outcomes import RefusalCode

Subject = Literal["workload", "pool", "node"]


class PlatformError(TransportError):
    """The platform did not answer, or not in its own language: what became of the call is not known."""


class Promises(NamedTuple):
    """How a platform does what it can do.

    A dry run is judged by the ``platform`` itself, or by the ``driver`` on the real state. With ``victims`` the
    replicas that a decision names are those that go. A checkpoint is ``confirmed`` by the replica before it goes, made
    by the ``platform``, or the replica is only ``asked`` for it. With ``rollback`` what fails is taken back up to a
    point of no return; with ``gang`` replicas that belong together start and stop together. With ``scrub`` the memory
    of a GPU is cleared before another tenant gets it.
    """

    dry_run: Literal["platform", "driver"] = "driver"
    victims: bool = False
    checkpoint: Literal["confirmed", "platform", "asked", "none"] = "none"
    rollback: bool = False
    gang: bool = False
    scrub: bool = False


class Capabilities(NamedTuple):
    """What a platform can do.

    ``kinds`` are the decisions that it can carry out; none: it can only plan. With ``tracks`` it knows operations by
    the id of their decision: the same id submitted again changes nothing more, and :meth:`Platform.find` tells
    whether it was ever submitted. ``about`` are the subjects that it is for: workloads, pools of machines, nodes.
    ``promises`` say how it does what it can.
    """

    kinds: frozenset[str]
    tracks: bool
    about: frozenset[Subject] = frozenset({"workload"})
    promises: Promises = Promises()


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that was taken on.

    ``operation`` is the platform's name for it, empty in dry run; ``expected`` what the platform should show once it
    is done; ``answer`` the platform's own words.
    """

    operation: str
    expected: SubjectState
    answer: str = ""


class Rejected(NamedTuple):
    """The platform will not do it, and has changed nothing; ``detail`` ends with the remedy."""

    code: RefusalCode
    detail: str


class Running(NamedTuple):
    """Still under way."""

    answer: str = ""


class Done(NamedTuple):
    """The platform shows ``observed`` since ``at_ns``."""

    observed: SubjectState
    at_ns: int
    answer: str = ""


class Failed(NamedTuple):
    """Given up by the platform; ``observed`` is what it shows now, where it tells."""

    answer: str
    observed: SubjectState | None = None


class Superseded(NamedTuple):
    """Given up by the platform because it was told something newer about the same subject."""

    answer: str
    observed: SubjectState | None = None


Progress = Running | Done | Failed | Superseded


class Platform(Protocol):
    """One platform that runs one cell or several."""

    @property
    def name(self) -> str:
        """Name in the configuration and in outcomes."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do; fixed for the life of the process."""
        ...

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """What the platform shows of the decision's subject; ``Rejected`` where it knows no such subject.

        Retry contract: reads only. The service repeats it after a :class:`PlatformError` until the decision expires.
        """
        ...

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Start what the decision says, provided the subject is still as ``observed``; do not wait for the effect.

        With ``dry_run`` everything is checked on the real state, and nothing is changed.

        Retry contract: called at most once for each decision unless it was ``Rejected`` with ``conflict``, which
        changes nothing. After a :class:`PlatformError`, or a crash in the middle, the outcome is unknown: where the
        platform ``tracks``, the service asks :meth:`find` and submits again only if it was never submitted; else the
        decision has failed with an unknown outcome. Inside one call a member may repeat only what its platform makes
        safe to repeat: a request token, or an absolute value under a version.
        """
        ...

    def poll(self, handle: Handle) -> Progress:
        """How an operation is getting on.

        Retry contract: reads, and may carry the operation on by steps that are safe to repeat, such as an eviction that
        waits for its budget; gives the same last answer for ever. Repeated after a :class:`PlatformError`.
        A handle survives a restart: ``operation`` and ``expected`` are all that may be needed.
        """
        ...

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """The operation of a decision that may have been submitted; ``None``: it certainly was not.

        ``observed`` is the state on which it was claimed, ``None`` where that is not known.

        Retry contract: reads only. Called only where the platform ``tracks``.
        """
        ...


@runtime_checkable
class Serving(Protocol):
    """A platform that answers questions of others while the actuator runs."""

    def close(self) -> None:
        """Answer no more."""
        ...
