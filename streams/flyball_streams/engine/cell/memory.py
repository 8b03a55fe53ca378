"""What an arbiter remembers between ticks, and how it comes to know what became of it."""

from collections import Counter

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Outcome, Proposal
from flyball_streams.engine.cell.backoff import Backoff
from flyball_streams.engine.cell.heard import KEPT_S, Heard, forget, heard_in, take
from flyball_streams.engine.cell.machines.memory import Choices
from flyball_streams.engine.cell.placement import Place
from flyball_streams.engine.cell.pools.stock import Stock
from flyball_streams.engine.cell.pools.wants import Want
from flyball_streams.engine.known import Known

UNDER_WAY_S = 3600.0
"""An operation of which nothing more is heard for so long is not believed to end."""
SEEN_S = 60.0
"""Agents say what runs twice a minute: what is done is seen in the inventories within this time."""


class Order(msgspec.Struct):
    """What was decided for a workload: ``replicas`` instead of ``before``, by decision ``id``, while ``seen`` ran.

    It is believed until it expires, comes to nothing, or is seen in the inventories; as long as the actuator says that
    it is under way, it does not expire. ``places`` are those that it was granted, a replica each, ``had`` the replicas
    that ran on their nodes then, ``victims`` those that it stops, ``mix`` the replicas by offer. That may change while
    their number stays, so such an order is believed until it is done or expires. ``status`` is the newest word on it.
    """

    id: str
    replicas: int
    before: int
    decided_ns: int
    expires_ns: int
    places: list[Place] = []
    had: dict[str, int] = {}
    victims: list[str] = []
    mix: dict[str, int] = {}
    seen: int = 0
    status: Heard = msgspec.field(default_factory=lambda: Heard(""))
    over: bool = False

    def shows(self, here: int) -> bool:
        """Whether replicas that run now are at least half of the way to what was ordered."""
        way, gone = self.replicas - self.seen, here - self.seen
        return not way or (gone * way > 0 and 2 * abs(gone) >= abs(way))


class Move(msgspec.Struct):
    """One replica on its way from ``source`` to ``devices`` GPUs of ``model`` on ``node`` (empty: nobody knows where).

    It is believed as an order is.
    """

    id: str
    workload: str
    replica: str
    source: str
    node: str
    model: str
    devices: int
    decided_ns: int
    expires_ns: int
    status: Heard = msgspec.field(default_factory=lambda: Heard(""))

    @property
    def subject(self) -> str:
        """What decisions about it are about."""
        return f"{self.workload}/{self.replica}"


class Preempted(msgspec.Struct):
    """A workload that gave way, to be brought back when there is room for a while."""

    replicas: int
    since_ns: int


MOST_BATCHES = 64


class Resizing(msgspec.Struct):
    """Resources that a workload gets in batches: what was proposed, the last decision about it, and batches done.

    ``decision`` is empty where none is under way.
    """

    proposal: Proposal
    decision: str
    batches: int = 0


class Memory(msgspec.Struct):
    """Orders by workload, moves by replica, quarantined devices and until when, who gave way, and times of resizes.

    ``resizing`` are those of which not all replicas are known to have the new resources.

    ``heard`` are outcomes, by decision, that no tick has learned yet; ``backoff`` is what had no effect. ``decided`` is
    the time of the newest decision about each target. ``stocks`` are the machines of pools, and ``wants`` is who lacks
    room. ``choices`` are the machines that were chosen for workloads.
    """

    orders: dict[str, Order] = {}
    moves: dict[str, Move] = {}
    unhealthy: dict[str, int] = {}
    preempted: dict[str, Preempted] = {}
    resized: dict[str, int] = {}
    resizing: dict[str, Resizing] = {}
    heard: dict[str, Heard] = {}
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    decided: dict[str, int] = {}
    stocks: dict[str, Stock] = {}
    wants: dict[str, Want] = {}
    choices: Choices = msgspec.field(default_factory=Choices)

    def heed(self, outcome: Outcome) -> None:
        """Note an outcome; the next tick learns it."""
        said = heard_in(outcome)
        if said is not None:
            take(self.heard, outcome.decision, said)

    def learn(self, now: int, rest_ns: int, directory: Known) -> None:
        """Take outcomes and inventories in, and drop what is over.

        An order is remembered for ``rest_ns`` after it, for the sake of hysteresis. What lies in the future was decided
        before the cell's clock was set back.
        """
        self.orders = {
            name: order
            for name, order in self.orders.items()
            if order.decided_ns <= now < max(order.expires_ns, order.decided_ns + rest_ns) or not order.over
        }
        self.orders = {name: order for name, order in self.orders.items() if order.decided_ns <= now}
        self.moves = {key: m for key, m in self.moves.items() if m.decided_ns <= now}
        self.unhealthy = {device: until for device, until in self.unhealthy.items() if until > now}
        self.resized = {name: at for name, at in self.resized.items() if directory.spec(name) is not None}
        self.resizing = {
            name: it
            for name, it in self.resizing.items()
            if name in self.resized and 0 <= now - self.resized[name] < KEPT_S * NS_PER_S
        }
        for name, order in self.orders.items():
            if not order.over:
                self._follow(name, order, now, directory)
        for key, move in list(self.moves.items()):
            if self._followed(move, now, directory):
                del self.moves[key]
        self._follow_others(now)
        forget(self.heard, now)
        self.backoff.forget(now)

    def believed(self, workload: str, now: int) -> Order | None:
        """Order of a workload that is still on its way."""
        order = self.orders.get(workload)
        return order if order is not None and order.expires_ns > now else None

    def _follow(self, name: str, order: Order, now: int, directory: Known) -> None:
        """See what became of an order."""
        said, here = self.heard.pop(order.id, None), directory.held(name).replicas
        if said is not None:
            order.status = said
            if said.status == "done":
                order.expires_ns = now + round(SEEN_S * NS_PER_S)
                if said.replicas is not None:
                    order.replicas = said.replicas
            elif not said.final:
                order.expires_ns = max(order.expires_ns, now + round(UNDER_WAY_S * NS_PER_S))
        done = order.status.status == "done"
        if here == order.replicas and (done or not order.mix):
            self.backoff.worked(name, order.id)
        elif order.status.final and not done:
            if order.seen != order.replicas and order.shows(here):
                self.backoff.worked(name, order.id)
            self.backoff.ended(name, order.id, order.status.words, now)
            order.replicas = order.before
            order.expires_ns = order.decided_ns
            order.over = True
            return
        elif order.expires_ns > now:
            return
        elif done if order.mix else order.shows(here):
            self.backoff.worked(name, order.id)
        else:
            self.backoff.ended(name, order.id, order.status.words, now if order.status.status else None)
        order.expires_ns, order.over = min(order.expires_ns, now), True

    def _followed(self, move: Move, now: int, directory: Known) -> bool:
        """Whether a move is over, one way or the other."""
        said = self.heard.pop(move.id, None)
        if said is not None:
            move.status = said
            if said.status == "done":
                move.expires_ns = now + round(SEEN_S * NS_PER_S)
            elif not said.final:
                move.expires_ns = max(move.expires_ns, now + round(UNDER_WAY_S * NS_PER_S))
        places = {r.node for r in directory.parts(move.workload, move.replica)}
        left, done = move.source not in places, move.status.status == "done"
        if left and (places or done):
            self.backoff.worked(move.subject, move.id)
        if left and places and move.node in ("", *places):
            return True
        if move.status.final and not done:
            self.backoff.ended(move.subject, move.id, move.status.words, now)
            return True
        if move.expires_ns > now:
            return False
        self.backoff.ended(move.subject, move.id, move.status.words, now if move.status.status else None)
        return True

    def _follow_others(self, now: int) -> None:
        """Learn what became of decisions of which no order is kept: resizes, and those whose outcome comes late."""
        if not self.heard:
            return
        for subject, known in self.backoff.subjects.items():
            for attempt in list(known.attempts):
                said = self.heard.get(attempt.decision)
                if said is None or not said.final:
                    continue
                del self.heard[attempt.decision]
                self._resized(subject, attempt.decision, said)
                if said.status == "done":
                    self.backoff.worked(subject, attempt.decision)
                else:
                    self.backoff.ended(subject, attempt.decision, said.words, now)

    def _resized(self, workload: str, decision: str, said: Heard) -> None:
        """After a batch comes the next; what was refused after the first one waits, and is tried again."""
        it = self.resizing.get(workload)
        if it is None or it.decision != decision:
            return
        it.decision = ""
        it.batches += said.status == "done"
        goes_on = said.partly if said.status == "done" else it.batches and said.status == "refused"
        if not goes_on or it.batches >= MOST_BATCHES:
            del self.resizing[workload]


def outstanding(order: Order, workload: str, directory: Known) -> list[Place]:
    """Places that an order was granted and that no replica has taken yet.

    The platform may have found others: there are never more than replicas that are still to come. Of a mix, replicas
    come while others go.
    """
    missing = len(order.places) if order.mix else max(0, order.replicas - directory.held(workload).replicas)
    if not missing or not order.places:
        return []
    taken = replicas_at(workload, directory)
    taken.subtract(order.had)
    left: list[Place] = []
    for place in order.places:
        node = place[0].node if place else ""
        if taken[node] > 0:
            taken[node] -= 1
        else:
            left.append(place)
    return left[:missing]


def replicas_at(workload: str, directory: Known) -> Counter[str]:
    """Replicas of a workload by node; one that spans several counts where its first part is."""
    first = {r.name: r.node for r in reversed(directory.replicas(workload))}
    return Counter(first.values())
