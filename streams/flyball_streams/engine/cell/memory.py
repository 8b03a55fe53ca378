"""What an arbiter remembers between ticks."""

import msgspec

from flyball_streams.engine.directory import Directory


class Order(msgspec.Struct):
    """What was decided for a workload: ``replicas`` instead of ``before``, by decision ``id``.

    It is believed until it expires, or until the inventories show it. ``claims`` are the GPUs by model that it was
    granted, ``had`` those that the workload held then, ``victims`` the replicas that it stops, ``mix`` the replicas by
    offer. That may change while their number stays, so such an order is believed until it expires.
    """

    id: str
    replicas: int
    before: int
    decided_ns: int
    expires_ns: int
    claims: dict[str, float] = {}
    had: dict[str, float] = {}
    victims: list[str] = []
    mix: dict[str, int] = {}


class Move(msgspec.Struct):
    """One replica on its way to ``devices`` GPUs of ``model`` on ``node`` (empty: nobody knows where)."""

    id: str
    workload: str
    replica: str
    node: str
    model: str
    devices: int
    decided_ns: int
    expires_ns: int


class Preempted(msgspec.Struct):
    """A workload that gave way, to be brought back when there is room for a while."""

    replicas: int
    since_ns: int


class Memory(msgspec.Struct):
    """Orders by workload, moves by replica, quarantined devices and until when, who gave way, and times of resizes."""

    orders: dict[str, Order] = {}
    moves: dict[str, Move] = {}
    unhealthy: dict[str, int] = {}
    preempted: dict[str, Preempted] = {}
    resized: dict[str, int] = {}

    def forget(self, now: int, rest_ns: int, directory: Directory) -> None:
        """Drop what is over; an order is remembered for ``rest_ns`` after it, for the sake of hysteresis.

        What lies in the future was decided before the cell's clock was set back.
        """
        self.orders = {
            name: order
            for name, order in self.orders.items()
            if order.decided_ns <= now < max(order.expires_ns, order.decided_ns + rest_ns)
        }
        self.moves = {key: m for key, m in self.moves.items() if m.decided_ns <= now < m.expires_ns}
        self.unhealthy = {device: until for device, until in self.unhealthy.items() if until > now}
        self.resized = {name: at for name, at in self.resized.items() if directory.spec(name) is not None}
        for name, order in self.orders.items():
            if order.expires_ns > now and not order.mix and directory.held(name).replicas == order.replicas:
                order.expires_ns = now

    def heed(self, decision: str) -> None:
        """Stop believing in a decision that was refused or failed; rest times still count from it."""
        for order in self.orders.values():
            if order.id == decision:
                order.replicas, order.expires_ns = order.before, order.decided_ns
        for move in self.moves.values():
            if move.id == decision:
                move.devices = 0

    def believed(self, workload: str, now: int) -> Order | None:
        """Order of a workload that is still on its way."""
        order = self.orders.get(workload)
        return order if order is not None and order.expires_ns > now else None


def outstanding(order: Order, workload: str, per_replica: float, directory: Directory) -> dict[str, float]:
    """GPUs by model that an order was granted and has not taken yet."""
    replicas, here = directory.held(workload)
    left = {m: max(0.0, n - max(0.0, here.get(m, 0.0) - order.had.get(m, 0.0))) for m, n in order.claims.items()}
    # The platform may have found room on other models than was thought.
    excess = sum(left.values()) - max(0, order.replicas - replicas) * per_replica
    for model in sorted(left, key=lambda m: (-left[m], m)):
        cut = min(left[model], max(0.0, excess))
        left[model] -= cut
        excess -= cut
    return left
