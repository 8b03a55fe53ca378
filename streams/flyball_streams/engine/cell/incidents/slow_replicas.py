"""Replicas that were moved off slow devices, and those that are slow wherever they run.

A rank may be slow by itself: a stage of a pipeline, or one with more input. If it is slow again on another device, the
program is the cause, and moving it again does not help. Platforms that rename a replica when it moves hide which one it
is; on these, two replicas of a workload are moved within a day.

A device that is only slow needs a second sign, which may come later than the proposal to move its replica. The proposal
waits for it as long as the detector looks back. After that the device may no longer be slow; if it still is, there is a
new proposal.
"""

from collections.abc import Callable, Container

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Proposal, Tick
from flyball_models.anomaly.peers import OF_TICKS

WITHIN_NS = 86_400 * NS_PER_S
MOST_RENAMED = 2
MOST_KEPT = 16


class SlowMove(msgspec.Struct):
    """One move of a replica off a device that was slow."""

    replica: str
    device: str
    time_ns: int


class SlowReplicas(msgspec.Struct):
    """Moves off slow devices by workload, the newest last, and proposals that wait for a second sign.

    ``waiting`` has these proposals by device, each with the end of the tick in which it was made, ns.
    """

    moves: dict[str, list[SlowMove]] = {}
    waiting: dict[str, tuple[int, Proposal]] = {}

    def wait(self, proposal: Proposal, now_ns: int) -> None:
        """Keep a proposal that lacks a second sign."""
        self.waiting[proposal.device] = now_ns, proposal

    def confirmed(self, tick: Tick, is_confirmed: Callable[[Proposal], bool]) -> list[Proposal]:
        """Remove and return the waiting proposals that are confirmed now; those that waited too long are dropped."""
        if not self.waiting:
            return []
        kept_ns = OF_TICKS * tick.period_ns
        self.waiting = {d: held for d, held in self.waiting.items() if 0 <= tick.end_ns - held[0] < kept_ns}
        found = [proposal for _, proposal in self.waiting.values() if is_confirmed(proposal)]
        for proposal in found:
            del self.waiting[proposal.device]
        return found

    def note(self, workload: str, replica: str, device: str, now_ns: int) -> None:
        """Keep a move."""
        kept = [m for m in self.moves.get(workload, ()) if m.replica != replica or m.device != device]
        self.moves[workload] = [*kept, SlowMove(replica, device, now_ns)][-MOST_KEPT:]
        self.moves = {w: moves for w, moves in self.moves.items() if now_ns - moves[-1].time_ns <= WITHIN_NS}

    def is_slow_itself(self, workload: str, replica: str, device: str, now_ns: int, running: Container[str]) -> bool:
        """Whether a replica that is slow on a device was slow on another one, or may be a renamed one that was."""
        moves = [m for m in self.moves.get(workload, ()) if m.device != device and 0 <= now_ns - m.time_ns <= WITHIN_NS]
        renamed = {m.device for m in moves if m.replica not in running}
        return any(m.replica == replica for m in moves) or len(renamed) >= MOST_RENAMED
