"""Detects GPUs whose values are missing though their node goes on sending: lost without a report.

Scrapes fail, drivers restart and agents start before the driver does; all of these end by themselves. How long that
takes is learned from all GPUs of the cell (:mod:`flyball_models.anomaly.sojourn`). Neither its own history nor its
peers excuse a GPU: missing values do not depend on its work, and GPUs that are lost at the same time must not hide each
other. A GPU that never sent a value, is no longer in the inventory, or whose node is silent, too, is not reported here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Anomaly, Evidence
from flyball_models.anomaly import sojourn, tail
from flyball_streams.engine.budget import BUDGET_S, score
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.detectors.stuck import COLUMNS, SAMPLE_S
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.packing import arrays, like

LOST = "missing_device"
LEAST_S, ALONE = np.array([60.0], np.float32), np.ones(1, np.int64)
CONFIG = sojourn.Config(
    alone_s=1800.0,
    fade_s=1.0,
    sizes=tail.Config(
        prior_s=8 * 86_400.0, prior_excess=(0.5, 0.5), excess_n=2.0, prior_shape=(0.2, 0.2), shapes=(0.0, 0.8)
    ),
)
"""By the prior, values of a GPU are missing for more than a minute once in sixteen days."""


class Lost(NamedTuple):
    """Stays without values of N GPUs [1, N]; whether a GPU's row and a value came in the sample so far [N]."""

    stays: sojourn.State
    here: NDArray[np.bool_]
    present: NDArray[np.bool_]


def init(n: int) -> Lost:
    """State of ``n`` GPUs without observations."""
    return Lost(sojourn.init(n, 1), np.zeros(n, np.bool_), np.zeros(n, np.bool_))


class LostDevices(Detector[Lost]):
    """Follows the GPUs of a cell; ``elapsed_s`` is the sample's time so far, ``rate`` the budget per GPU and second."""

    def __init__(self, table: SubjectTable, rate: float) -> None:
        super().__init__(table.capacity, init)
        self.table, self.rate = table, rate
        self.tail = tail.init(2, rate, CONFIG.sizes)
        self.elapsed_s = 0.0
        self._known: tuple[Tenancy, sojourn.Peers, NDArray[np.bool_], NDArray[np.int64]] | None = None

    def resize(self, capacity: int) -> None:
        """Make room for more GPUs."""
        super().resize(capacity)
        self._known = None

    def boot(self, devices: list[str]) -> None:
        """Reset the GPUs of a node that has booted."""
        self.reset([self.table.slots[name] for name in devices if name in self.table.slots])

    def step(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies at the end of a sample."""
        means = seen.gpus.means
        if means is None:
            return
        here = self.model.here | means.mask
        present = self.model.present | np.isfinite(means.values.take(COLUMNS, axis=1)).any(axis=1)
        self.elapsed_s += means.elapsed_s
        if self.elapsed_s < SAMPLE_S:
            self.model = Lost(self.model.stays, here, present)
            return
        elapsed_s, self.elapsed_s = self.elapsed_s, 0.0
        peers, exists, host = self._arranged(seen)
        sends = (here | np.append(seen.hosts.mask, False)[host]) & exists
        nothing = np.zeros(self.capacity, np.bool_)
        inside = (sends & ~present)[None]
        stays, self.tail, found = sojourn.step(
            self.model.stays, self.tail, inside, sends[None], peers, LEAST_S, elapsed_s, self.rate, CONFIG
        )
        self.model = Lost(stays, nothing, nothing.copy())
        for slot in np.flatnonzero(found.ratio[0]).tolist() if found.ratio.any() else ():
            size = np.array([float(found.ratio[0, slot])])
            expected_false = float(tail.rates(self.tail, ALONE, size, CONFIG.sizes)[0]) * BUDGET_S
            since_s = float(stays.stays_s[0, slot])
            evidence = (Evidence(name=f"{LOST}.time", value=since_s, expected=float(found.limit_s[0, slot]), unit="s"),)
            since_ns = seen.tick.end_ns - round(since_s * NS_PER_S)
            grade = score(expected_false, self.rate * BUDGET_S)
            anomaly = seen.anomaly(seen.gpus, slot, LOST, grade, evidence, since_ns)
            yield replace(anomaly, workload="", false_per_1000_gpu_days=expected_false)

    def _arranged(self, seen: CellTick) -> tuple[sojourn.Peers, NDArray[np.bool_], NDArray[np.int64]]:
        """An arrangement without peers, which GPUs exist, and the slots of their hosts (-1: none), for the tenancy."""
        kept, hosts = self._known, seen.hosts
        if kept is None or kept[0] is not seen.tenancy:
            no_group = np.full(self.capacity, -1, np.int32)
            exists, host = np.zeros(self.capacity, np.bool_), np.full(self.capacity, -1, np.int64)
            for node, inventory in seen.inventories.items():
                slots = [seen.gpus.slots[device.id] for device in inventory.devices]
                exists[slots], host[slots] = True, hosts.slots.get(node, -1)
            kept = self._known = seen.tenancy, sojourn.arrange(no_group, no_group, CONFIG), exists, host
        return kept[1], kept[2], kept[3]

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {**super().state(), "tail": arrays(self.tail), "elapsed_s": self.elapsed_s}

    def load(self, state: Mapping[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(dict(state), capacity)
        self.tail, self.elapsed_s, self._known = like(self.tail, state["tail"]), state["elapsed_s"], None
