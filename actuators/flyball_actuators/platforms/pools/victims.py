"""Chooses the machines of a pool to return."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected


class Machine(NamedTuple):
    """One machine of a pool; ``names`` are the possible names of its node.

    ``started`` orders machines by age. A ``protected`` machine is not taken; ``leaving`` is the decision that marked it
    for return.
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
    """Choose machines to return: none that is protected, or that runs work according to the inventories.

    In this order: machines the decision has already marked, machines it has ``named`` by node, machines not running
    yet, the youngest.
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
