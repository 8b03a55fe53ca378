"""Reports of a training job about itself, by lines or in its log."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from flyball_collectors.base import NAN

THROUGHPUT = ("throughput", "tokens_per_s", "samples_per_s")
FIELDS = frozenset({"step", "steps", "loss", "step_time_s", "progress", *THROUGHPUT})
"""Used fields; ``steps`` is the total number of steps, and the first throughput given counts."""


class Progress(NamedTuple):
    """State of a job; NaN for missing values. ``steps_done`` is an increase."""

    throughput: float = NAN
    step_time_s: float = NAN
    progress: float = NAN
    loss: float = NAN
    steps_done: float = NAN


class Job:
    """One replica of a training job; each field is valid until the next report, or until the job is silent.

    A missing step time is computed from the steps between two updates. A step below the previous one (the job went back
    to a checkpoint) counts as none done.
    """

    def __init__(self, silent_s: float, steps: int | None = None) -> None:
        self.restarts = 0
        self._silent_s = silent_s
        self._fields: dict[str, float] = {"steps": float(steps)} if steps else {}
        self._updated_s: float | None = None
        self._step: tuple[float, float] | None = None
        self._done = NAN

    def update(self, fields: Mapping[str, float], now_s: float) -> None:
        """Add a report at monotonic time ``now_s``; values that are not finite are left out."""
        known = {name: value for name, value in fields.items() if name in FIELDS and math.isfinite(value)}
        if not known:
            return
        self._updated_s = now_s
        step = known.get("step")
        if step is not None:
            self._count(step, now_s, timed="step_time_s" in known)
        self._fields.update(known)

    def silent(self, now_s: float) -> bool:
        """Whether there was no report for too long."""
        return self._updated_s is None or now_s - self._updated_s > self._silent_s

    def take(self, now_s: float) -> Progress | None:
        """State now, ``steps_done`` since the last call; ``None`` while the job is silent."""
        done, self._done = self._done, 0.0 if self._step is not None else NAN
        if self.silent(now_s):
            return None
        fields = self._fields
        share = fields.get("progress", NAN)
        if share != share and fields.get("steps", 0.0) > 0:
            share = fields.get("step", NAN) / fields["steps"]
        return Progress(
            throughput=next((fields[name] for name in THROUGHPUT if name in fields), NAN),
            step_time_s=fields.get("step_time_s", NAN),
            progress=min(max(share, 0.0), 1.0) if share == share else NAN,
            loss=fields.get("loss", NAN),
            steps_done=done,
        )

    def _count(self, step: float, now_s: float, *, timed: bool) -> None:
        if self._step is not None:
            before, before_s = self._step
            if step < before:
                self.restarts += 1
            elif step > before:
                self._done = (self._done if self._done == self._done else 0.0) + step - before
                if not timed and now_s > before_s:
                    self._fields["step_time_s"] = (now_s - before_s) / (step - before)
            elif not timed:
                return  # a repeated step: its time counts from its first report
        self._step = step, now_s
