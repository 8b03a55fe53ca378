"""Which machines of a pool go."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected


class Machine(NamedTuple):
    """One machine of a pool; ``names`` are what its node may be called.

    ``started`` orders machines by age. It is not taken while it is ``protected``, and ``leaving`` is the decision by
    which it was marked to go.
    """

    id: str
    names: frozenset[str]
    ready: bool
    started: str = ""
    protected: bool = False
    leaving: str = ""


def choose(
    machines: Iterable[Machine], count: int, decision: str, busy: frozenset[str], named: Collection[str] = ()
) -> list[Machine] | Rejected:
    """The machines to return: none that is protected, or on which inventories show work.

    What the decision has marked before goes first, then what it has ``named`` by its node, then what does not run yet,
    then the youngest.
    """
    known = list(machines)
    free = [m for m in known if not m.protected and not m.names & busy]
    if len(free) < count:
        kept = sorted(m.id for m in known if m not in free)
        return Rejected(
            "unsupported",
            f"{count} machines are to go, and only {len(free)} are idle and unprotected; move the work off "
            f"{', '.join(kept)}, or return fewer",
        )
    youngest = sorted(free, key=lambda m: (m.started, m.id), reverse=True)
    return sorted(youngest, key=lambda m: (m.leaving != decision, m.names.isdisjoint(named), m.ready))[:count]
