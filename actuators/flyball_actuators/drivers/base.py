"""What a driver promises."""

from typing import Literal, NamedTuple, Protocol

from flyball_contracts.records import AnyDecision


class Answer(NamedTuple):
    """What became of the call: ``text`` is the platform's own words, kept in the outcome."""

    status: Literal["done", "failed"]
    text: str


class Driver(Protocol):
    """Carries out one authorised decision.

    The retry contract: the service calls :meth:`apply` at most once for each decision id, after the ledger
    has recorded it as sent. A driver may retry inside one call only what its platform makes safe to repeat
    (a request token or an absolute value under a version). After a crash in the middle of a call the service
    calls again only if ``repeatable``; otherwise it reports ``failed`` with an unknown outcome.

    A driver that cannot choose machines obeys the ``replicas`` of a ``Scale`` and leaves its ``mix`` alone: what then
    runs is seen in the inventories, and sized by.
    """

    @property
    def name(self) -> str:
        """Name in the configuration and in outcomes."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether applying the same decision twice has the same effect as once."""
        ...

    def apply(self, decision: AnyDecision) -> Answer:
        """Do it and wait for the platform's answer.

        A refusal by the platform is an answer (``failed``). An exception means that the outcome is unknown.
        """
        ...
