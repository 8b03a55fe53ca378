"""Detects workloads that hang: their devices spin without work, or stand still.

There is one finding for each workload, as the ranks of a gang wait together. Work that hangs again after a restart has
not run on its new devices: for an hour it is compared with what it showed on others of the same model.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Anomaly, Evidence
from flyball_models.anomaly import hang
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.detectors.standstills import Standstills
from flyball_streams.engine.node.profile import Profiles
from flyball_streams.engine.node.tenancy import POWER, UTILIZATION, Tenancy
from flyball_streams.engine.node.training import TrainingWorkloads

SM_ACTIVITY = GPU.column("nvidia.gpu.sm.activity")
POWER_LIMIT = GPU.column("nvidia.gpu.power.limit{type=enforced}")
SCORE = 0.9
REPEAT_S = 60.0
MOST_KEPT, KEPT_S = 4096, 3600.0
"""Usual values of so many workloads are kept, those that ran last, and for so long after they ran."""
MOST = 0.75
"""Share of a workload's devices that must look hung if it has not run on any of them."""


class Hanging(Detector[hang.State]):
    """Both kinds of hang in one cell; a workload is reported once for both, at the time in ``reported``, ns.

    ``usual`` has the power in W and SM activity of each training workload, by workload and model of GPU: the least of
    the means of its devices, and when it last ran, ns.
    """

    def __init__(self, training: TrainingWorkloads, profiles: Profiles, capacity: int) -> None:
        self.training = training
        self.profiles = profiles
        super().__init__(capacity, hang.init)
        self.standstills = Standstills()
        self.reported: dict[str, int] = {}
        self.usual: dict[tuple[str, str], tuple[float, float, int]] = {}

    def change_work(self, kinds: dict[int, str]) -> None:
        """Reset slots whose work has changed; the workload rows of this window belong to others from now on."""
        self.reset(list(kinds))
        self.standstills.forget_pages()

    def step(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies at the end of a window; each names its workload and its first device."""
        tick, tenancy, means = seen.tick, seen.tenancy, seen.gpus.means
        if seen.gpus.mask.any():  # otherwise no window ends that would use the rows
            self.standstills.note(tenancy.values)
        if means is None:
            return
        trains = self.training.of(tenancy)
        shown = means.values, means.mask, tenancy, trains, self.profiles.model.periods_s
        step_s = tick.period_ns / NS_PER_S
        standing = list(self.standstills.step(*shown, self.profiles.pauses, means.elapsed_s, step_s))
        owner = np.where(means.mask, tenancy.workload_of_slot[: len(means.mask)], np.int32(-1))
        x = hang.Inputs(*(means.values[:, column] for column in (UTILIZATION, SM_ACTIVITY, POWER, POWER_LIMIT)))
        self._recall(tenancy, owner, tick.end_ns)
        self.model, hung = hang.step(self.model, x, means.elapsed_s)
        self._learn(tenancy, owner, trains, tick.end_ns)
        reported: set[str] = set()
        workloads: list[int] = np.unique(owner[hung & (owner >= 0)]).tolist() if hung.any() else []
        for index in workloads:
            workload = tenancy.workloads[index]
            spec = seen.directory.spec(workload)
            if not trains[index] and (spec is None or spec.kind != "batch"):
                continue  # a server with few requests looks the same: busy, with little work
            slots: list[int] = np.flatnonzero(hung & (owner == index)).tolist()
            if not (hang.is_settled(self.model, slots) or self._hangs_at_its_start(index, owner, len(slots))):
                continue
            if not self._is_news(workload, tick.end_ns):
                continue
            reported.add(workload)
            usual, now = float(self.model.power_w[slots[0]]), means.values[slots[0]]
            power = Evidence(name="hw.power", value=float(now[POWER]), expected=usual, unit="W")
            since_s = float(self.model.hung_s[slots].max())
            yield _anomaly(seen, workload, slots, since_s, float(now[UTILIZATION]), power)
        for still in standing:
            workload = tenancy.workloads[still.workload]
            if workload not in reported and self._is_news(workload, tick.end_ns):
                use = _mean(means.values[still.slots, UTILIZATION])
                name = "ranks.idle" if still.idle else "without.step"
                pause = Evidence(name=name, value=still.since_s, expected=still.limit_s, unit="s")
                yield _anomaly(seen, workload, still.slots, still.since_s, use, pause)

    def _hangs_at_its_start(self, index: int, owner: NDArray[np.int32], hung: int) -> bool:
        """Whether most devices of a workload spin, and it has not worked on any of them and made no step."""
        slots: list[int] = np.flatnonzero(owner == index).tolist()
        works = self.standstills.counted[index] or hang.is_settled(self.model, slots)
        return not works and hung >= MOST * len(slots)

    def hung(self, now_ns: int) -> set[str]:
        """Workloads that hang at a time in ns: the hang was reported in the last two minutes, and is each minute."""
        return set(self._reported(now_ns))

    def _is_news(self, workload: str, now_ns: int) -> bool:
        """Whether a workload that hangs is to be reported now; it is not reported again for ``REPEAT_S``."""
        self.reported = self._reported(now_ns)
        last_ns = self.reported.get(workload)
        if last_ns is not None and now_ns - last_ns < REPEAT_S * NS_PER_S:
            return False
        self.reported[workload] = now_ns
        return True

    def _reported(self, now_ns: int) -> dict[str, int]:
        """Hangs of the last two minutes."""
        return {w: t for w, t in self.reported.items() if 0 <= now_ns - t < 2.0 * REPEAT_S * NS_PER_S}

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        usual = [[*key, *values] for key, values in self.usual.items()]
        return {
            **super().state(), "standstills": self.standstills.state(), "reported": self.reported, "usual": usual,
        }  # fmt: skip

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self.standstills.load(state["standstills"])
        self.reported = dict(state["reported"])
        self.usual = {(workload, model): (power, active, at) for workload, model, power, active, at in state["usual"]}

    def _recall(self, tenancy: Tenancy, owner: NDArray[np.int32], now_ns: int) -> None:
        """Give devices on which a workload has not run yet what it showed on others of their model."""
        if not self.usual:
            return
        slots = np.flatnonzero((owner >= 0) & (self.model.seen_s == 0.0))
        keys, inverse = np.unique(_pairs(tenancy, owner, slots), return_inverse=True)
        known = [self.usual.get(_names(tenancy, key), (np.nan, np.nan, 0)) for key in keys.tolist()]
        usual = np.array([one[:2] if 0 <= now_ns - one[2] < KEPT_S * NS_PER_S else (np.nan, np.nan) for one in known])
        if len(keys) and (recent := np.isfinite(usual[inverse, 0])).any():
            self.model = hang.adopt(self.model, slots[recent], *usual[inverse[recent]].T)

    def _learn(self, tenancy: Tenancy, owner: NDArray[np.int32], trains: NDArray[np.bool_], now_ns: int) -> None:
        """Note what the devices of training workloads usually show."""
        model = self.model
        slots = np.flatnonzero((owner >= 0) & (model.seen_s > hang.DEFAULT.warm_s))
        slots = slots[trains[owner[slots]]]
        pairs = _pairs(tenancy, owner, slots)
        order = np.argsort(pairs, kind="stable")
        keys, first = np.unique(pairs[order], return_index=True)
        if not len(keys):
            return
        power_w, activity = (np.minimum.reduceat(x[slots[order]], first) for x in (model.power_w, model.activity))
        for key, power, active in zip(keys.tolist(), power_w.tolist(), activity.tolist(), strict=True):
            names = _names(tenancy, key)
            self.usual.pop(names, None)
            self.usual[names] = power, active, now_ns
        while len(self.usual) > MOST_KEPT:
            del self.usual[next(iter(self.usual))]


def _pairs(tenancy: Tenancy, owner: NDArray[np.int32], slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for the workload and the model of GPU of each slot."""
    return owner[slots].astype(np.int64) * max(1, len(tenancy.models)) + tenancy.model_of_slot[slots]


def _names(tenancy: Tenancy, pair: int) -> tuple[str, str]:
    workload, model = divmod(pair, max(1, len(tenancy.models)))
    return tenancy.workloads[workload], tenancy.models[model]


def _anomaly(seen: CellTick, workload: str, slots: list[int], since_s: float, use: float, of: Evidence) -> Anomaly:
    """Anomaly of a workload, or of the device if only one hangs."""
    evidence = (
        Evidence(name="hw.gpu.utilization{task=general}", value=use),
        of,
        Evidence(name="devices", value=float(len(slots)), unit="{device}"),
    )
    since_ns = seen.tick.end_ns - round(since_s * NS_PER_S)
    first = seen.anomaly(seen.gpus, slots[0], "hang", SCORE, evidence, since_ns)
    one = record_id("Anomaly", seen.cell, workload, "hang", seen.tick.index)
    return replace(first, id=one, subject=first.subject if len(slots) == 1 else workload, workload=workload)


def _mean(x: NDArray[np.float32]) -> float:
    known = x[np.isfinite(x)]
    return float(known.mean()) if len(known) else 0.0
