"""The task interface: a decision from its submission to its effect."""

from typing import Literal, NamedTuple, Protocol

from flyball_contracts.errors import RecordError
from flyball_contracts.records import SubjectState

Code = Literal["unknown_target", "conflict", "invalid"]


class Refused(RecordError):
    """A submission that the platform refuses; code and nodes are those of the :class:`Rejection`."""

    def __init__(self, code: Code, detail: str, unsuitable_nodes: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.code: Code = code
        self.unsuitable_nodes = unsuitable_nodes


class Progress(NamedTuple):
    """Progress of a task with a message; ``running`` until the effect shows or the task is given up."""

    status: Literal["running", "done", "failed"]
    detail: str


class Task(Protocol):
    """One decision that the plant carries out.

    The constructor changes nothing, and raises :class:`Refused` or :class:`RecordError` for an impossible decision.
    ``names`` are the replicas that the decision concerns.
    """

    names: tuple[str, ...]

    def expected(self, before: SubjectState) -> SubjectState:
        """State that the platform should show in the end."""
        ...

    def begin(self) -> None:
        """Make the changes for the next tick."""
        ...

    def advance(self) -> Progress:
        """Check the progress at this tick, and do what is due."""
        ...

    def supersede(self) -> bool:
        """Give up what has not started, for a newer operation; returns whether something still has to end."""
        ...
