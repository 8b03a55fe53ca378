"""State of an arbiter between ticks, and how it is reconciled with outcomes and inventories."""

from collections import Counter

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Outcome, Proposal
from flyball_streams.engine.cell.backoff import Backoff
from flyball_streams.engine.cell.machines.memory import Choices
from flyball_streams.engine.cell.placement import Place
from flyball_streams.engine.cell.pools.stock import Stock
from flyball_streams.engine.cell.pools.wants import UnmetDemand
from flyball_streams.engine.cell.rate_limit import Rising, WaitForVictims
from flyball_streams.engine.cell.reports import KEPT_S, Report, expire, record, report_of
from flyball_streams.engine.fleet_index import FleetIndex

UNDER_WAY_S = 3600.0
"""An operation without a new report for this long counts as lost."""
SEEN_S = 60.0
"""Agents publish inventories twice a minute: an order that is done shows in them within this time."""


class Order(msgspec.Struct):
    """A scaling order for a workload: ``replicas`` instead of ``before``, by decision ``id``, when ``seen`` ran.

    It is in flight until it expires, fails, or shows in the inventories; while the actuator reports it as running, it
    does not expire. ``places`` are the places granted to it, one for each replica, ``had`` the replicas that ran on
    these nodes before, ``victims`` the replicas that it stops, and ``mix`` the replicas by offer. A mix can change
    while the number of replicas stays, so such an order is in flight until it is done or expires. ``report`` is the
    newest report on it.
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
    report: Report = msgspec.field(default_factory=lambda: Report(""))
    over: bool = False

    def shows(self, here: int) -> bool:
        """Whether the ``here`` replicas that run now are at least half way to the number ordered."""
        way, gone = self.replicas - self.seen, here - self.seen
        return not way or (gone * way > 0 and 2 * abs(gone) >= abs(way))


class Move(msgspec.Struct):
    """One replica that moves from node ``source`` to ``devices`` GPUs of ``model`` on ``node`` (empty: unknown).

    It is in flight under the same conditions as an order. ``proposal`` is decided again if the platform refuses the
    node.
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
    report: Report = msgspec.field(default_factory=lambda: Report(""))
    proposal: Proposal | None = None

    @property
    def subject(self) -> str:
        """Subject of decisions about this replica."""
        return f"{self.workload}/{self.replica}"


class Preempted(msgspec.Struct):
    """A preempted workload and its former replicas; it is restored once there has been room for a while.

    One that ``restarts`` was stopped because it hangs, and is restored as soon as it has ``stopped``.
    """

    replicas: int
    since_ns: int
    restarts: bool = False
    stopped: bool = False


class Unsuitable(msgspec.Struct):
    """Nodes on which the platform does not let a workload run, as it reported at ``since_ns``."""

    nodes: dict[str, None]
    since_ns: int


MOST_BATCHES = 64


class Resizing(msgspec.Struct):
    """A resize in batches: the proposal, the last decision about it (empty: none is under way), and batches done."""

    proposal: Proposal
    decision: str
    batches: int = 0


class Memory(msgspec.Struct):
    """State of an arbiter, part of the cell lane's snapshot.

    ``orders`` are by workload, ``moves`` by replica; ``again`` are proposals to move whose node the platform refused in
    this tick, and ``unsuitable`` the nodes that it refused, by workload. ``unhealthy`` maps devices to the time until
    which nothing is placed on them. ``preempted`` are workloads to restore. ``resized`` has the time of the last resize
    of a workload, ``resizing`` those whose replicas do not all have the new resources yet. ``reports`` are reports, by
    decision, that no tick has applied yet; ``backoff`` has the attempts without effect. ``decided`` is the time of the
    newest decision about each target that later ones wait for, ``rescued`` that of rescues among them, ``rising`` the
    growth that waits, and ``waits`` the workloads that wait until their victims are due. ``stocks`` are the machines of
    pools, ``wants`` the workloads that lack room, and ``choices`` the machines that were chosen for workloads.
    """

    orders: dict[str, Order] = {}
    moves: dict[str, Move] = {}
    again: list[Proposal] = []
    unsuitable: dict[str, Unsuitable] = {}
    unhealthy: dict[str, int] = {}
    preempted: dict[str, Preempted] = {}
    resized: dict[str, int] = {}
    resizing: dict[str, Resizing] = {}
    reports: dict[str, Report] = {}
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    decided: dict[str, int] = {}
    rescued: dict[str, int] = {}
    rising: dict[str, Rising] = {}
    waits: dict[str, WaitForVictims] = {}
    stocks: dict[str, Stock] = {}
    wants: dict[str, UnmetDemand] = {}
    choices: Choices = msgspec.field(default_factory=Choices)

    def receive(self, outcome: Outcome) -> None:
        """Keep an outcome; the next tick applies it."""
        report = report_of(outcome)
        if report is not None:
            record(self.reports, outcome.decision, report)

    def reconcile(self, now: int, rest_ns: int, unhealthy_ns: int, directory: FleetIndex) -> None:
        """Compare orders and moves with outcomes and inventories, and drop those that are over.

        An order is kept for ``rest_ns`` after its decision, for hysteresis. Entries of the future are from before the
        cell's clock was set back: they are dropped, or count from now on, an unhealthy device for ``unhealthy_ns``.
        """
        self.orders = {
            name: order
            for name, order in self.orders.items()
            if order.decided_ns <= now and (now < max(order.expires_ns, order.decided_ns + rest_ns) or not order.over)
        }
        self.moves = {key: m for key, m in self.moves.items() if m.decided_ns <= now}
        latest = now + unhealthy_ns
        self.unhealthy = {device: min(until, latest) for device, until in self.unhealthy.items() if until > now}
        for preempted in self.preempted.values():
            preempted.since_ns = min(preempted.since_ns, now)
        self.resized = {name: at for name, at in self.resized.items() if directory.spec(name) is not None}
        self.resizing = {
            name: it
            for name, it in self.resizing.items()
            if name in self.resized and 0 <= now - self.resized[name] < KEPT_S * NS_PER_S
        }
        for name, order in self.orders.items():
            if not order.over:
                self._follow(name, order, now, directory)
        self.unsuitable = {
            name: known
            for name, known in self.unsuitable.items()
            if 0 <= now - known.since_ns < KEPT_S * NS_PER_S and directory.spec(name) is not None
        }
        for key, move in list(self.moves.items()):
            if self._followed(move, now, directory):
                del self.moves[key]
        self._follow_others(now)
        expire(self.reports, now)
        self.backoff.forget(now)

    def believed(self, workload: str, now: int) -> Order | None:
        """Order of a workload that is in flight."""
        order = self.orders.get(workload)
        return order if order is not None and order.expires_ns > now else None

    def is_restarting(self, workload: str) -> bool:
        """Whether a workload was stopped to be started again, and does not run yet."""
        preempted = self.preempted.get(workload)
        return preempted is not None and preempted.restarts

    def _follow(self, name: str, order: Order, now: int, directory: FleetIndex) -> None:
        """Update an order from its report and the inventories."""
        report, here = self.reports.pop(order.id, None), directory.held(name).replicas
        if report is not None:
            order.report = report
            if report.status == "done":
                order.expires_ns = now + round(SEEN_S * NS_PER_S)
                if report.replicas is not None:
                    order.replicas = report.replicas
            elif not report.final:
                order.expires_ns = max(order.expires_ns, now + round(UNDER_WAY_S * NS_PER_S))
        done = order.report.status == "done"
        if here == order.replicas and (done or not order.mix):
            self.backoff.worked(name, order.id)
        elif order.report.final and not done:
            if order.seen != order.replicas and order.shows(here):
                self.backoff.worked(name, order.id)
            self.backoff.ended(name, order.id, order.report.ending, now, allowed=order.report.allowed)
            order.replicas = order.before
            order.expires_ns = order.decided_ns
            order.over = True
            return
        elif order.expires_ns > now:
            return
        elif done if order.mix else order.shows(here):
            self.backoff.worked(name, order.id)
        else:
            self.backoff.ended(name, order.id, order.report.ending, now if order.report.status else None)
        order.expires_ns, order.over = min(order.expires_ns, now), True

    def _followed(self, move: Move, now: int, directory: FleetIndex) -> bool:
        """Update a move; return whether it is over, with or without effect."""
        report = self.reports.pop(move.id, None)
        if report is not None:
            move.report = report
            if report.status == "done":
                move.expires_ns = now + round(SEEN_S * NS_PER_S)
            elif not report.final:
                move.expires_ns = max(move.expires_ns, now + round(UNDER_WAY_S * NS_PER_S))
        places = {r.node for r in directory.parts(move.workload, move.replica)}
        left, done = move.source not in places, move.report.status == "done"
        if left and (places or done):
            self.backoff.worked(move.subject, move.id)
        if left and places and move.node in ("", *places):
            return True
        if move.report.final and not done:
            self.backoff.ended(move.subject, move.id, move.report.ending, now)
            if move.proposal is not None and move.node in move.report.unsuitable_nodes:
                known = self.unsuitable.setdefault(move.workload, Unsuitable({}, now))
                known.nodes.update(dict.fromkeys(move.report.unsuitable_nodes))
                known.since_ns = now
                self.again.append(move.proposal)
            return True
        if move.expires_ns > now:
            return False
        self.backoff.ended(move.subject, move.id, move.report.ending, now if move.report.status else None)
        return True

    def _follow_others(self, now: int) -> None:
        """Apply reports on decisions without an order: resizes, and outcomes that come late."""
        if not self.reports:
            return
        for subject, known in self.backoff.subjects.items():
            for attempt in list(known.attempts):
                report = self.reports.get(attempt.decision)
                if report is None or not report.final:
                    continue
                del self.reports[attempt.decision]
                self._resized(subject, attempt.decision, report)
                if report.status == "done":
                    self.backoff.worked(subject, attempt.decision)
                else:
                    self.backoff.ended(subject, attempt.decision, report.ending, now, allowed=report.allowed)

    def _resized(self, workload: str, decision: str, report: Report) -> None:
        """Go on to the next batch of a resize; one that was refused after the first batch is tried again later."""
        it = self.resizing.get(workload)
        if it is None or it.decision != decision:
            return
        it.decision = ""
        it.batches += report.status == "done"
        goes_on = report.partly if report.status == "done" else it.batches and report.status == "refused"
        if not goes_on or it.batches >= MOST_BATCHES:
            del self.resizing[workload]


def outstanding(order: Order, workload: str, directory: FleetIndex) -> list[Place]:
    """Places granted to an order that no replica has taken yet.

    The platform may have found other places, so there are never more places than replicas still to come. This does not
    limit the places of a mix, in which replicas come while others go.
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


def replicas_at(workload: str, directory: FleetIndex) -> Counter[str]:
    """Replicas of a workload by node; one that spans several counts where its first part is."""
    first = {r.name: r.node for r in reversed(directory.replicas(workload))}
    return Counter(first.values())
