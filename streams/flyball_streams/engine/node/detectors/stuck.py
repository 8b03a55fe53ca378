"""Detects sensors of GPUs that are stuck, and metrics that a device delivered and no longer does.

What a device reports is then wrong or incomplete: a fault of its telemetry, which moves no work and speaks against no
node. Of the SM clock only its absence is reported: a healthy one runs at its highest value for hours, and an
administrator may pin it to any. A stuck sensor that no other sensor of its device reveals may differ from those of its
peers: :mod:`.sojourns` reports it, but no sensor that is known here to be stuck.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Anomaly, Evidence
from flyball_models.anomaly import stuck
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.packing import arrays, like

STUCK, MISSING = "stuck_sensor", "missing_metric"
SCORE = 0.3
SAMPLE_S = 30.0
"""Means of this time are compared: a stuck sensor is no emergency, and its model costs as much as all of a window."""
METRICS = (
    "hw.power",
    "hw.temperature{sensor=gpu}",
    "hw.gpu.utilization{task=general}",
    "nvidia.gpu.sm.activity",
    "hw.gpu.memory.utilization",
    "nvidia.gpu.clock.frequency{clock=sm}",
)
"""The first four may be stuck; any may be missing."""
CONFIG = stuck.Config(
    least=(1.0, 1.0, 0.02, 0.02),
    most=(1e6, 1e6, 0.98, 0.98),
    moved=(20.0, 5.0, 0.3, 0.2),
    moves=(
        (False, False, True, True),
        (True, False, False, False),
        (True, False, False, True),
        (True, False, False, False),
    ),
)
"""Power follows use and SM activity; temperature follows power; use follows power or SM activity; SM activity follows
power."""
JUDGED = METRICS[: len(CONFIG.least)]
COLUMNS = np.array([GPU.column(key) for key in METRICS])
UNITS = [GPU.metrics[int(column)].unit for column in COLUMNS]


class StuckSensors(Detector[stuck.State]):
    """Follows the sensors of GPUs; ``total`` and ``count`` [M, N] sum up a sample, ``elapsed_s`` is its time so far."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, lambda slots: stuck.init(slots, len(METRICS), CONFIG))
        self._restart()

    def resize(self, capacity: int) -> None:
        """Make room for more devices; the sample starts again."""
        super().resize(capacity)
        self._restart()

    def reset(self, slots: list[int]) -> None:
        """Reset slots that belong to other devices now."""
        super().reset(slots)
        self.total[:, slots] = self.count[:, slots] = 0.0

    def change_work(self, kinds: dict[int, str]) -> None:
        """Reset devices whose work has changed: other work may use no profiler, or stop that of the agent."""
        self.reset(list(kinds))

    def step(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies at the end of a sample, of each device at most one of each kind."""
        means = seen.gpus.means
        if means is None:
            return
        x = means.values.take(COLUMNS, axis=1).T
        known = np.isfinite(x)
        self.total += np.where(known, x, np.float32(0.0))
        self.count += known
        self.here |= means.mask
        self.elapsed_s += means.elapsed_s
        if self.elapsed_s < SAMPLE_S:
            return
        with np.errstate(invalid="ignore"):
            sample: NDArray[np.float32] = (self.total / self.count).astype(np.float32)
        self.model, found = stuck.step(self.model, sample, self.here, self.elapsed_s, CONFIG)
        self._restart()
        for name, which, since_s in (
            (STUCK, found.stuck, self.model.repeats_s), (MISSING, found.missing, self.model.missing_s)
        ):  # fmt: skip
            for slot in np.flatnonzero(which.any(axis=0)).tolist() if which.any() else ():
                yield self._anomaly(seen, slot, name, np.flatnonzero(which[:, slot]).tolist(), since_s[:, slot])

    def knows(self, slot: int, key: str) -> bool:
        """Whether the sensor of a metric is known to be stuck."""
        return key in JUDGED and bool(self.model.is_stuck[JUDGED.index(key), slot])

    def _anomaly(
        self, seen: CellTick, slot: int, detector: str, metrics: list[int], since_s: NDArray[np.float32]
    ) -> Anomaly:
        """Anomaly with the last value of each metric, and how long ago it was new; it concerns no workload."""
        last_s = [float(since_s[m]) for m in metrics]
        evidence = [Evidence(name=METRICS[m], value=float(self.model.last[m, slot]), unit=UNITS[m]) for m in metrics]
        if detector == STUCK:
            movers = [j for j, moves in enumerate(CONFIG.moves[metrics[0]]) if moves]
            low, high = (limits[metrics[0], :, slot] for limits in (self.model.low, self.model.high))
            evidence += [
                Evidence(name=METRICS[j], value=float(high[j]), expected=float(low[j]), unit=UNITS[j])
                for j in movers
                if np.isfinite(low[j])
            ]
        evidence.append(Evidence(name=f"{detector}.time", value=max(last_s), expected=0.0, unit="s"))
        since_ns = seen.tick.end_ns - round(max(last_s) * NS_PER_S)
        return replace(seen.anomaly(seen.gpus, slot, detector, SCORE, tuple(evidence), since_ns), workload="")

    def _restart(self) -> None:
        shape = len(METRICS), self.capacity
        self.total, self.count = np.zeros(shape), np.zeros(shape)
        self.here, self.elapsed_s = np.zeros(self.capacity, np.bool_), 0.0

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {**super().state(), "sums": arrays((self.total, self.count, self.here)), "elapsed_s": self.elapsed_s}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self._restart()
        self.total, self.count, self.here = like((self.total, self.count, self.here), state["sums"])
        self.elapsed_s = state["elapsed_s"]
