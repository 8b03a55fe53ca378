"""The task port: one decision on its way to its effect."""

from typing import Literal, NamedTuple, Protocol

from flyball_contracts.errors import RecordError
from flyball_contracts.records import SubjectState

Code = Literal["unknown_target", "conflict", "invalid"]


class Refused(RecordError):
    """A submission that the platform does not take; ``code`` is that of the :class:`Rejection`."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(detail)
        self.code: Code = code


class Progress(NamedTuple):
    """How far a task is, in words; ``running`` until the effect is there or is given up."""

    status: Literal["running", "done", "failed"]
    detail: str


class Task(Protocol):
    """One decision that the plant is to obey.

    It is made without changing anything, and raises :class:`Refused` or :class:`RecordError` for what cannot be.
    ``names`` are the replicas that the decision concerns.
    """

    names: tuple[str, ...]

    def expected(self, before: SubjectState) -> SubjectState:
        """What the platform should show in the end."""
        ...

    def begin(self) -> None:
        """Change what the next tick finds."""
        ...

    def advance(self) -> Progress:
        """Look what has come of it by the next tick, and do what is due."""
        ...

    def supersede(self) -> bool:
        """Give up what is not begun, for a newer operation; returns whether something is left to be ended."""
        ...
