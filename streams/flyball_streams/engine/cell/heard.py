"""What the actuator said of decisions, until the tick that learns it."""

from typing import Literal

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Outcome
from flyball_streams.engine.cell.backoff import UNANSWERED

KEPT_S = 3600.0
MOST_HEARD = 1024
Ending = Literal["", "accepted", "running", "done", "failed", "refused", "superseded", "planned"]
RANK = {"": 0, "accepted": 1, "running": 2, "failed": 3, "refused": 3, "superseded": 3, "planned": 3, "done": 4}
"""A later word counts; of two last ones, that there was an effect."""


class Heard(msgspec.Struct):
    """The newest word on a decision: its status, why, and the replicas that the platform shows.

    ``since_ns`` is the first tick at which nothing was known of the decision. ``partly`` means that not all
    replicas were to have new resources.
    """

    status: Ending
    code: str = ""
    replicas: int | None = None
    since_ns: int = -1
    partly: bool = False

    @property
    def final(self) -> bool:
        """Whether it is the last word."""
        return RANK[self.status] > RANK["running"]

    @property
    def words(self) -> str:
        """How a decision ended without effect."""
        if self.status == "refused":
            return f"refused by {self.code}" if self.code else "refused"
        return {
            "": UNANSWERED, "accepted": "accepted and not ended", "running": "started and not ended",
            "done": "reported as done but not seen", "planned": "planned in dry run",
        }.get(self.status, self.status)  # fmt: skip


def heard_in(outcome: Outcome) -> Heard | None:
    """What an outcome says; ``None`` for one that a decision was told before, which takes nothing back."""
    if outcome.status == "refused" and outcome.code == "duplicate":
        return None
    status = outcome.status
    if status == "done" and outcome.mode != "live":
        status = "planned"  # recordings of before dry runs had a word of their own
    state = outcome.before if outcome.observed is None and status == "refused" else outcome.observed
    observed = None if state is None else state.replicas
    partly = outcome.expected is not None and outcome.expected.resources is None
    return Heard(status, outcome.code, observed, partly=partly)


def take(known: dict[str, Heard], decision: str, said: Heard) -> None:
    """Note what was said of a decision; the oldest of too many are forgotten."""
    before = known.get(decision)
    if before is None or RANK[said.status] >= RANK[before.status]:
        known[decision] = said
    while len(known) > MOST_HEARD:
        del known[next(iter(known))]


def forget(known: dict[str, Heard], now: int) -> None:
    """Drop what was said of decisions that nobody has known of for long."""
    for decision, said in list(known.items()):
        if said.since_ns < 0 or said.since_ns > now:
            said.since_ns = now
        elif now - said.since_ns >= KEPT_S * NS_PER_S:
            del known[decision]
