"""State of the cell lane about machine choices."""

import msgspec

from flyball_contracts.records import Evidence, Portion
from flyball_streams.engine.cell.machines.losses import Losses


class Chosen(msgspec.Struct, frozen=True):
    """A past choice: replicas in all and by offer, its explanation, and the time that its machines may take.

    ``proposal`` is the id of the proposal that it was made for. ``decision`` is the id of its newest order, empty
    before the first one.
    """

    replicas: int
    mix: dict[str, int]
    portions: tuple[Portion, ...]
    reason: str
    evidence: tuple[Evidence, ...]
    since_ns: int
    wait_ns: int
    until_ns: int
    proposal: str
    decision: str = ""


class Choices(msgspec.Struct):
    """Choices of a cell by workload, and delivery of its offers.

    ``pending`` are choices whose machines are not all there, ``looked`` is the time of the last search for the cheapest
    mix, ``seen`` the replicas held by offer at the previous tick, ``needs`` the replicas of the last choice, and
    ``kept`` the replicas and counts that the last choice found sufficient. ``short`` maps offers that do not deliver to
    the time until which they are not used.
    """

    pending: dict[str, Chosen] = {}
    looked: dict[str, int] = {}
    seen: dict[str, dict[str, int]] = {}
    needs: dict[str, int] = {}
    kept: dict[str, tuple[int, dict[str, int]]] = {}
    short: dict[str, int] = {}
    losses: Losses = msgspec.field(default_factory=Losses)

    def keep(self, names: set[str], offers: set[str], now_ns: int, retry_ns: int) -> None:
        """Drop all other workloads, offers that no longer exist, and shortages that have ended.

        A shortage lasts for ``retry_ns`` at most, also if the cell's clock was set back.
        """
        self.short = {name: min(until, now_ns + retry_ns) for name, until in self.short.items() if until > now_ns}
        self.pending = {name: chosen for name, chosen in self.pending.items() if chosen.mix.keys() <= offers}
        for known in (self.pending, self.looked, self.seen, self.needs, self.kept):
            for name in known.keys() - names:
                del known[name]

    def ordered(self, workload: str, decision: str, now_ns: int) -> None:
        """Note the order of a pending choice; its time limit starts with the first order."""
        pending = self.pending[workload]
        until_ns = pending.until_ns if pending.decision else now_ns + pending.wait_ns
        self.pending[workload] = msgspec.structs.replace(pending, decision=decision, until_ns=until_ns)

    def drop(self, workload: str) -> None:
        """Drop a workload's pending choice and its sufficient counts."""
        self.pending.pop(workload, None)
        self.kept.pop(workload, None)
