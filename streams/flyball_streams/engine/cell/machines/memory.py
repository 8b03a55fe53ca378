"""What the cell lane remembers of the machines that it chose."""

import msgspec

from flyball_contracts.records import Evidence, Portion
from flyball_streams.engine.cell.machines.losses import Losses


class Chosen(msgspec.Struct, frozen=True):
    """A choice that was made: replicas in all and by offer, what was said, and how long its machines may take.

    ``proposal`` is the id of the proposal that it was made for. ``decision`` is that of its newest order, empty
    while that has to wait.
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
    """Choices of a cell by workload, and what its offers delivered.

    ``pending`` are choices whose machines are not all there, ``looked`` is when the cheapest mix was last looked for,
    ``seen`` is what was held by offer at the tick before, ``needs`` the replicas that were chosen for last, and
    ``kept`` the replicas and counts for which the last choice was found to do. ``short`` are offers that give no more,
    until when.
    """

    pending: dict[str, Chosen] = {}
    looked: dict[str, int] = {}
    seen: dict[str, dict[str, int]] = {}
    needs: dict[str, int] = {}
    kept: dict[str, tuple[int, dict[str, int]]] = {}
    short: dict[str, int] = {}
    losses: Losses = msgspec.field(default_factory=Losses)

    def keep(self, names: set[str], offers: set[str], now_ns: int) -> None:
        """Forget all other workloads, what was chosen of offers that are no more, and what is short no longer."""
        self.short = {name: until for name, until in self.short.items() if until > now_ns}
        self.pending = {name: chosen for name, chosen in self.pending.items() if chosen.mix.keys() <= offers}
        for known in (self.pending, self.looked, self.seen, self.needs, self.kept):
            for name in known.keys() - names:
                del known[name]

    def ordered(self, workload: str, decision: str, now_ns: int) -> None:
        """Take note of the order of what is pending; the time that it may take counts from the first one."""
        pending = self.pending[workload]
        until_ns = pending.until_ns if pending.decision else now_ns + pending.wait_ns
        self.pending[workload] = msgspec.structs.replace(pending, decision=decision, until_ns=until_ns)

    def drop(self, workload: str) -> None:
        """Wait no more for the machines of a workload; what was found to do is looked at again."""
        self.pending.pop(workload, None)
        self.kept.pop(workload, None)
