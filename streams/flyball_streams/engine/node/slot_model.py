"""State by slot of a table of subjects; the table notifies its models when slots change."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from flyball_models import grow
from flyball_streams.engine.packing import arrays, like, wiped

M = TypeVar("M", bound=tuple[Any, ...])


class SlotModel(Generic[M]):
    """A model of the subjects of a :class:`~flyball_streams.engine.node.table.SubjectTable`.

    ``model`` is a NamedTuple of arrays with the slots as their last axis, as in :mod:`~flyball_streams.engine.packing`;
    ``init(n)`` makes the model of ``n`` subjects without observations.
    """

    def __init__(self, capacity: int, init: Callable[[int], M]) -> None:
        self.capacity = capacity
        self.init = init
        self.model = init(capacity)

    def resize(self, capacity: int) -> None:
        """Make room for more subjects."""
        self.capacity, self.model = capacity, grow(self.model, capacity, self.init)

    def reset(self, slots: list[int]) -> None:
        """Reset slots that belong to other subjects now."""
        if slots:
            self.model = wiped(self.model, self.init(self.capacity), slots)

    def change_work(self, kinds: dict[int, str]) -> None:
        """Note that allocations have changed; ``kinds`` maps slots whose work has changed to the new kinds of work."""

    def retire(self, subjects: list[str]) -> None:
        """Drop the state that is kept by name for subjects that are gone."""

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"model": arrays(self.model)}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot of a table with this capacity."""
        self.capacity, self.model = capacity, like(self.init(capacity), state["model"])
