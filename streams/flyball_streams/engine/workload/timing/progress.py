"""Progress and speed of a deferrable job, and the duration of its starts."""

from statistics import median

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Demand, Tick, WorkloadSpec

DECLARED_WEIGHT = 0.02
"""Share of a job that the declared duration counts for, beside the pace that was measured."""
PATIENCE = 0.05
"""Share of the declared duration for which a job may report the same progress before it counts as standing still."""
STARTS_KEPT = 8
STARTS_TRUSTED = 3
"""Measured starts that are needed before their spread is used for the next one."""
LONGEST_S = 1e9
"""Thirty years, the most that a specification may give. A clock that jumped measures a longer or a negative time."""


class Progress(msgspec.Struct):
    """Progress of one job.

    ``share`` is the last reported progress, ``first`` the first one. ``measured_s`` is the time that the job was ready
    between ``first`` and the last change of ``share``, ``same_s`` the time since; ``longest_s`` is the longest time
    between changes. ``ran_s`` is the running time of jobs that report nothing. ``starts_s`` are the last starts, from
    the proposal until the job was ready; ``requested_ns`` is the time of a requested start that is still pending.
    """

    share: float | None = None
    first: float | None = None
    measured_s: float = 0.0
    same_s: float = 0.0
    longest_s: float = 0.0
    ran_s: float = 0.0
    replicas: int = 0
    ready: bool = False
    requested_ns: int | None = None
    starts_s: list[float] = msgspec.field(default_factory=list[float])

    def observe(self, tick: Tick, demand: Demand | None) -> None:
        """Update with the demand of a tick."""
        self.replicas = demand.replicas if demand is not None else 0
        self.ready = demand is not None and demand.ready > 0
        if demand is None:
            return
        if self.ready and self.requested_ns is not None:
            self.starts_s = [*self.starts_s, (tick.end_ns - self.requested_ns) / NS_PER_S][-STARTS_KEPT:]
            self.requested_ns = None
        period_s = tick.period_ns / NS_PER_S if self.ready else 0.0
        self.ran_s += period_s
        if self.first is not None:
            self.same_s += period_s
        share = None if demand.progress is None else min(1.0, max(0.0, demand.progress))
        if share is not None and share != self.share:
            self.longest_s = max(self.longest_s, self.same_s)
            self.measured_s, self.same_s = self.measured_s + self.same_s, 0.0
            self.share = share
            self.first = share if self.first is None else self.first

    def note_request(self, now_ns: int) -> None:
        """Note that a start is requested."""
        if self.requested_ns is None:
            self.requested_ns = now_ns

    def remaining_s(self, spec: WorkloadSpec) -> float:
        """Running time that the job still needs.

        For a job that reports progress, it is the rest at its measured speed. The declared duration counts as a share
        ``DECLARED_WEIGHT`` of a job, so a job that is slow, stands still or lost work is behind at once.
        """
        declared_s = spec.duration_s or 0.0
        if self.share is None or self.first is None:
            return _time(declared_s - self.ran_s)
        gained = max(0.0, self.share - self.first)
        still_s = max(0.0, self.same_s - max(self.longest_s, PATIENCE * declared_s))
        whole_s = (DECLARED_WEIGHT * declared_s + self.measured_s + still_s) / (DECLARED_WEIGHT + gained)
        return _time(max(0.0, 1.0 - self.share) * whole_s)

    def restart_s(self, spec: WorkloadSpec, cold_start_s: float) -> float:
        """Time without progress that a pause and a restart cost."""
        usual = max(cold_start_s, median(self.starts_s)) if self.starts_s else cold_start_s
        return _time(usual + spec.checkpoint_s)

    def margin_s(self, cold_start_s: float) -> float:
        """Reserve before the deadline: the slowest start less the usual one; the slowest alone while few are known."""
        if len(self.starts_s) < STARTS_TRUSTED:
            return _time(max([cold_start_s, *self.starts_s]))
        return _time(max(self.starts_s) - median(self.starts_s))


def _time(seconds: float) -> float:
    """Seconds within the range that the planner computes with."""
    return min(max(0.0, seconds), LONGEST_S)
