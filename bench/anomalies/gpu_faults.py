"""Faults that are put into the row of one GPU, as what they do to its metrics."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU

FAULT_S = 600.0
"""How long a fault lasts."""
Block = NDArray[np.float32]


class Fault(NamedTuple):
    """What becomes of the row of one GPU, given the seconds since the fault began."""

    name: str
    change: Callable[[Block, float], None]


def _added(key: str, value: float) -> Callable[[Block, float], None]:
    column = GPU.column(key)

    def change(row: Block, since_s: float) -> None:
        del since_s
        row[column] += value

    return change


def _times(key: str, factor: float) -> Callable[[Block, float], None]:
    column = GPU.column(key)

    def change(row: Block, since_s: float) -> None:
        del since_s
        row[column] *= factor

    return change


def _leak(row: Block, since_s: float) -> None:
    column = GPU.column("hw.gpu.memory.utilization")
    row[column] = min(1.0, row[column] * 0.4 + since_s / FAULT_S)


def _counts(key: str, value: float) -> Callable[[Block, float], None]:
    column = GPU.column(key)

    def change(row: Block, since_s: float) -> None:
        del since_s
        row[column] = value

    return change


def _hang(row: Block, since_s: float) -> None:
    del since_s
    row[GPU.column("hw.gpu.utilization{task=general}")] = 1.0
    row[GPU.column("nvidia.gpu.sm.activity")] = 0.01
    row[GPU.column("hw.power")] *= 0.3


FAULTS = (
    Fault("clock down by 5 %", _times("nvidia.gpu.clock.frequency{clock=sm}", 0.95)),
    Fault("clock down by 10 %", _times("nvidia.gpu.clock.frequency{clock=sm}", 0.9)),
    Fault("clock down by 20 %", _times("nvidia.gpu.clock.frequency{clock=sm}", 0.8)),
    Fault("hot by 10 K", _added("hw.temperature{sensor=gpu}", 10.0)),
    Fault("hot by 20 K", _added("hw.temperature{sensor=gpu}", 20.0)),
    Fault("power at half", _times("hw.power", 0.5)),
    Fault("clock at half", _times("nvidia.gpu.clock.frequency{clock=sm}", 0.5)),
    Fault("hung: busy without work", _hang),
    Fault("corrected errors, 20 a tick", _added("hw.errors{type=corrected}", 20.0)),
    Fault("memory fills", _leak),
    Fault("NVLink errors, 5 a tick", _counts("nvidia.gpu.nvlink.errors", 5.0)),
    Fault("PCIe replays, 5 a tick", _counts("nvidia.gpu.pcie.replays", 5.0)),
)
