"""State of a node and its devices."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.frame import Frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, HOST
from flyball_contracts.records import Inventory

UTILIZATION, POWER, TEMPERATURE, MEMORY = range(4)
_GPU_COLUMNS = [
    GPU.column("hw.gpu.utilization{task=general}"),
    GPU.column("hw.power"),
    GPU.column("hw.temperature{sensor=gpu}"),
    GPU.column("hw.gpu.memory.utilization"),
]
_HOST_CPU = HOST.column("system.cpu.utilization")
SAMPLES, SAMPLE_NS = 180, 5 * NS_PER_S
SILENT_NS, SILENT_PERIODS = 30 * NS_PER_S, 3

Health = Literal["failing", "straggling", "anomalous"]
SEVERITY: dict[Health, int] = {"anomalous": 1, "straggling": 2, "failing": 3}


@dataclass(frozen=True, slots=True)
class Mark:
    """A reported problem of a device, with its time and text."""

    health: Health
    time_ns: int
    text: str


class History:
    """The last samples of a node's devices, at least five seconds apart: ``float16[sample, device, quantity]``."""

    def __init__(self) -> None:
        self._values: NDArray[np.float16] = np.empty((0, 0, len(_GPU_COLUMNS)), np.float16)
        self._times: NDArray[np.int64] = np.zeros(SAMPLES, np.int64)
        self._count = 0
        self._last_ns = 0

    def add(self, time_ns: int, table: NDArray[np.float32]) -> None:
        """Add a sample if it is late enough; another number of devices or a clock set back clears the history."""
        if self._values.shape[1] != len(table) or time_ns < self._last_ns:
            self._values = np.full((SAMPLES, *table.shape), np.nan, np.float16)
            self._count = self._last_ns = 0
        if time_ns - self._last_ns < SAMPLE_NS:
            return
        place = self._count % SAMPLES
        self._values[place], self._times[place] = table, time_ns
        self._count, self._last_ns = self._count + 1, time_ns

    def read(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Times and values in order."""
        known = min(self._count, SAMPLES)
        order = np.arange(self._count - known, self._count) % SAMPLES
        return self._times[order], self._values[order].astype(np.float32)


@dataclass(slots=True)
class Node:
    """One node: its inventory and the last measurements of its devices.

    ``gpus`` is ``float32[device, (utilisation, W, Cel, memory)]``, NaN where unknown; ``cpu`` a ratio.
    """

    name: str
    inventory: Inventory | None = None
    time_ns: int = 0
    period_ns: int = 0
    gpus: NDArray[np.float32] | None = None
    cpu: float | None = None
    run: tuple[str, int] = ("", -1)
    seq: int = -1
    history: History = field(default_factory=History)

    def measure(self, frame: Frame) -> bool:
        """Take a frame's values; ``False`` for a frame that is not newer than the last one."""
        run = (frame.boot_id, frame.epoch)
        if run == self.run and frame.seq <= self.seq:
            return False
        self.run, self.seq, self.time_ns, self.period_ns = run, frame.seq, frame.time_ns, frame.period_ns
        if frame.schema == GPU.schema:
            self.gpus = frame.values[:, _GPU_COLUMNS]
            self.history.add(frame.time_ns, self.gpus)
        elif frame.schema == HOST.schema and frame.rows:
            cpu = float(frame.values[0, _HOST_CPU])
            self.cpu = cpu if np.isfinite(cpu) else None
        return True

    def is_silent(self, now_ns: int) -> bool:
        """Whether it has sent nothing for half a minute of event time, or three of its periods if that is longer."""
        return not self.time_ns or now_ns - self.time_ns > max(SILENT_NS, SILENT_PERIODS * self.period_ns)

    def table(self) -> NDArray[np.float32]:
        """Measurements in the inventory's order of devices; NaN rows without measurements."""
        count = len(self.inventory.devices) if self.inventory else 0
        table = np.full((count, len(_GPU_COLUMNS)), np.nan, np.float32)
        if self.gpus is not None:
            rows = min(count, len(self.gpus))
            table[:rows] = self.gpus[:rows]
        return table

    def workloads(self) -> list[str]:
        """Name of the workload on each device, empty where it is free."""
        if self.inventory is None:
            return []
        names = [""] * len(self.inventory.devices)
        for allocation in self.inventory.allocations:
            for row in allocation.devices:
                if 0 <= row < len(names):
                    names[row] = allocation.workload
        return names
