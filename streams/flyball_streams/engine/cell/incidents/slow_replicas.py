"""Replicas that were moved off slow devices, and those that are slow wherever they run.

A rank may be slow by itself: a stage of a pipeline, or one with more input. If it is slow again on another device, the
program is the cause, and moving it again helps no more. Platforms that rename a replica when it moves hide which one
that is; of their workloads two are moved within a day.
"""

from collections.abc import Container

import msgspec

from flyball_contracts.ids import NS_PER_S

WITHIN_NS = 86_400 * NS_PER_S
MOST_RENAMED = 2
MOST_KEPT = 16


class SlowMove(msgspec.Struct):
    """One move of a replica off a device that was slow."""

    replica: str
    device: str
    time_ns: int


class SlowReplicas(msgspec.Struct):
    """Moves off slow devices by workload, the newest last."""

    moves: dict[str, list[SlowMove]] = {}

    def note(self, workload: str, replica: str, device: str, now_ns: int) -> None:
        """Keep a move."""
        kept = [m for m in self.moves.get(workload, ()) if m.replica != replica or m.device != device]
        self.moves[workload] = [*kept, SlowMove(replica, device, now_ns)][-MOST_KEPT:]
        self.moves = {w: moves for w, moves in self.moves.items() if now_ns - moves[-1].time_ns <= WITHIN_NS}

    def is_slow_itself(self, workload: str, replica: str, device: str, now_ns: int, running: Container[str]) -> bool:
        """Whether a replica that is slow on a device was so on another one, or may be one of those renamed."""
        moves = [m for m in self.moves.get(workload, ()) if m.device != device and 0 <= now_ns - m.time_ns <= WITHIN_NS]
        renamed = {m.device for m in moves if m.replica not in running}
        return any(m.replica == replica for m in moves) or len(renamed) >= MOST_RENAMED
