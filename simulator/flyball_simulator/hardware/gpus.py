"""Physics of all GPUs at once: from the work of replicas to the columns of the GPU frames.

power = idle + (limit - idle) * intensity * work * (clock / full clock)^1.5
dT/dt = (ambient + resistance * power - T) / tau
"""

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator

from flyball_contracts.metrics import GPU
from flyball_contracts.records.workloads import WorkloadKind
from flyball_simulator.cell.placement import Rows
from flyball_simulator.hardware.faults import DRAIN_AND_RESET, FaultyGpu
from flyball_simulator.hardware.site import Floats, Ints, Site
from flyball_simulator.loads import Running

TAU_S, HOT_TAU_S = 25.0, 5.0
"""Thermal time constants of the die with and without working cooling."""
RISE_CEL = 44.0
"""Temperature rise above ambient at the power limit."""
RESERVED_BYTES = 6.5e8
BAR1_BYTES = 3.4e7
CLOCK_EXPONENT = 1.5


T = TypeVar("T")


class UsageShares(NamedTuple, Generic[T]):
    """Shares of a GPU that a workload uses at full work; ``cpu`` is of the host.

    For one kind of workload they are numbers, for the replicas of all GPUs float32[N].
    """

    power: T
    sm: T
    occupancy: T
    tensor: T
    dram: T
    memory: T
    pcie: T
    nvlink: T
    cpu: T


USAGE_BY_KIND: dict[WorkloadKind, UsageShares[float]] = {
    "inference": UsageShares(0.66, 0.72, 0.32, 0.30, 0.62, 0.86, 0.03, 0.01, 0.25),
    "training": UsageShares(0.92, 0.88, 0.45, 0.55, 0.48, 0.91, 0.02, 0.33, 0.35),
    "notebook": UsageShares(0.45, 0.50, 0.22, 0.12, 0.30, 0.24, 0.01, 0.00, 0.20),
    "batch": UsageShares(0.78, 0.80, 0.40, 0.35, 0.52, 0.63, 0.05, 0.02, 0.45),
}
IDLE = UsageShares(0, 0, 0, 0, 0, 0, 0, 0, 0)


KINDS = tuple(USAGE_BY_KIND)


class Column:
    """Columns that are written; all others stay NaN (not measured) or 0 (nothing happened)."""

    USE = GPU.column("hw.gpu.utilization{task=general}")
    USE_MIN = GPU.column("nvidia.gpu.utilization.min")
    USE_MAX = GPU.column("nvidia.gpu.utilization.max")
    USE_P95 = GPU.column("nvidia.gpu.utilization.p95")
    BUSY = GPU.column("nvidia.gpu.busy.time")
    CONTROLLER = GPU.column("nvidia.gpu.memory.controller.utilization")
    MEMORY = GPU.column("hw.gpu.memory.usage")
    MEMORY_LIMIT = GPU.column("hw.gpu.memory.limit")
    RESERVED = GPU.column("nvidia.gpu.memory.reserved")
    MEMORY_USE = GPU.column("hw.gpu.memory.utilization")
    BAR1 = GPU.column("nvidia.gpu.bar1.usage")
    SM = GPU.column("nvidia.gpu.sm.activity")
    OCCUPANCY = GPU.column("nvidia.gpu.sm.occupancy")
    TENSOR = GPU.column("nvidia.gpu.tensor.activity")
    DRAM = GPU.column("nvidia.gpu.dram.bandwidth.utilization")
    FP32 = GPU.column("nvidia.gpu.fp.activity{precision=32}")
    FP16 = GPU.column("nvidia.gpu.fp.activity{precision=16}")
    INT = GPU.column("nvidia.gpu.int.activity")
    GRAPHICS = GPU.column("nvidia.gpu.graphics.activity")
    POWER = GPU.column("hw.power")
    POWER_AVERAGE = GPU.column("nvidia.gpu.power.average")
    ENERGY = GPU.column("hw.energy")
    POWER_LIMIT = GPU.column("nvidia.gpu.power.limit{type=enforced}")
    TEMPERATURE = GPU.column("hw.temperature{sensor=gpu}")
    MEMORY_TEMPERATURE = GPU.column("hw.temperature{sensor=memory}")
    MARGIN = GPU.column("nvidia.gpu.temperature.margin")
    SM_CLOCK = GPU.column("nvidia.gpu.clock.frequency{clock=sm}")
    MEMORY_CLOCK = GPU.column("nvidia.gpu.clock.frequency{clock=mem}")
    HOT = GPU.column("nvidia.gpu.clock.event.active{reason=thermal}")
    BRAKED = GPU.column("nvidia.gpu.clock.event.active{reason=power}")
    BRAKED_TIME = GPU.column("nvidia.gpu.throttle.time{reason=power}")
    HOT_TIME = GPU.column("nvidia.gpu.throttle.time{reason=thermal}")
    FAN = GPU.column("hw.fan.speed_ratio")
    PCIE_IN = GPU.column("hw.gpu.io{direction=receive}")
    PCIE_OUT = GPU.column("hw.gpu.io{direction=transmit}")
    NVLINK_IN = GPU.column("nvidia.gpu.nvlink.io{direction=receive}")
    NVLINK_OUT = GPU.column("nvidia.gpu.nvlink.io{direction=transmit}")
    CORRECTED = GPU.column("hw.errors{type=corrected}")
    UNCORRECTED = GPU.column("hw.errors{type=uncorrected}")
    REMAP = GPU.column("nvidia.gpu.memory.row_remap.pending")
    RECOVERY = GPU.column("nvidia.gpu.recovery_action")
    NVLINK_ERRORS = GPU.column("nvidia.gpu.nvlink.errors")
    PCIE_REPLAYS = GPU.column("nvidia.gpu.pcie.replays")
    PROCESSES = GPU.column("nvidia.gpu.process.count")


ERRORS = (
    *(Column.CORRECTED, Column.UNCORRECTED, Column.REMAP, Column.RECOVERY),
    *(Column.NVLINK_ERRORS, Column.PCIE_REPLAYS),
)


class Gpus:
    """State of all N GPUs: temperature, power, and the usage shares of their replicas."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kelvin_per_w = RISE_CEL / site.power_limit_w
        self.power_w: Floats | None = None
        self._temperature_cel = site.ambient_cel
        self._no_gpm = np.flatnonzero(site.no_gpm)
        self.usage_shares = UsageShares[Floats](*np.zeros((len(IDLE), len(site.node_of)), np.float32))
        self._block = np.zeros((len(GPU), len(site.node_of)), np.float32)
        self._block[Column.FAN] = np.nan  # cooled by the chassis
        self._block[Column.MEMORY_LIMIT] = site.memory_bytes
        self._block[Column.RESERVED] = RESERVED_BYTES
        self._block[Column.BAR1] = BAR1_BYTES
        self._block[Column.MEMORY_CLOCK] = site.memory_clock_hz

    def settle(self, rows: Rows, kind_of: Ints) -> None:
        """Apply a new placement; ``kind_of`` [W] is each workload's index in ``KINDS``."""
        table = np.array([*USAGE_BY_KIND.values(), IDLE], np.float32)
        kind = np.append(kind_of[rows.workload], len(KINDS))
        self.usage_shares = UsageShares[Floats](*np.ascontiguousarray(table[kind[rows.of_gpu]].T))

    def step(self, dt_s: float, random: Generator, running: Running, rows: Rows, faulty: list[FaultyGpu]) -> Floats:
        """Advance ``dt_s`` seconds; returns the columns as float32[metrics, N]."""
        site, shares, block = self._site, self.usage_shares, self._block
        tenant = rows.of_gpu
        n = len(tenant)
        noise = random.standard_normal((5, n), np.float32)
        use = np.append(running.use, np.float32(0.0))[tenant]
        work = np.append(running.work, np.float32(0.0))[tenant]
        io = np.append(running.io, np.float32(0.0))[tenant]
        use = np.clip(use + 0.012 * use * noise[0], 0.0, 1.0)
        work = np.clip(work + 0.02 * work * noise[1], 0.0, 1.0)
        clock = np.where(use > 0.01, site.sm_clock_hz * running.clock, site.idle_clock_hz)
        clock -= np.float32(8e6) * np.abs(noise[2]) * (use > 0.01)
        hot, braked = np.zeros((2, n), np.float32)
        for one in faulty:
            braked[one.row] = max(braked[one.row], one.braked)
            if one.dead:
                use[one.row] = work[one.row] = 0.0
                clock[one.row] = site.idle_clock_hz[one.row]
            elif one.hot and use[one.row] > 0.05:
                hot[one.row] = 1.0
                use[one.row], work[one.row] = max(use[one.row], 0.99), max(work[one.row], 0.95)

        span = (site.power_limit_w - site.idle_power_w) * shares.power
        power = site.idle_power_w + span * work * (clock / site.sm_clock_hz) ** CLOCK_EXPONENT
        power = np.minimum(power * (1.0 + 0.008 * noise[3]), running.power_limit_w)
        before = self.power_w
        average = power if before is None else 0.5 * (power + before)
        self.power_w = power
        target = site.ambient_cel + self._kelvin_per_w * average
        target = np.where(hot > 0, site.slowdown_cel, target)
        tau_s = np.where(hot > 0, np.float32(HOT_TAU_S), np.float32(TAU_S))
        # What runs at the start has run for long: it is warm.
        pace = np.float32(1.0) if before is None else -np.expm1(-np.float32(dt_s) / tau_s)
        self._temperature_cel = self._temperature_cel + (target - self._temperature_cel) * pace

        spread = 0.02 * use + 0.4 * use * (1.0 - use)
        block[Column.USE] = use
        block[Column.USE_MIN] = np.maximum(use - spread, 0.0)
        block[Column.USE_MAX] = np.minimum(use + spread, 1.0)
        block[Column.USE_P95] = np.minimum(use + 0.8 * spread, 1.0)
        block[Column.BUSY] = use * np.float32(dt_s)
        block[Column.CONTROLLER] = np.minimum(1.1 * shares.dram * work, 1.0)
        starting = np.append(np.where(running.ready, np.float32(1.0), np.float32(0.5)), np.float32(0.0))[tenant]
        memory = RESERVED_BYTES + shares.memory * starting * (1.0 + 0.001 * noise[4]) * site.memory_bytes
        block[Column.MEMORY] = memory
        block[Column.MEMORY_USE] = memory / site.memory_bytes
        block[Column.SM] = shares.sm * work
        block[Column.OCCUPANCY] = shares.occupancy * work
        block[Column.TENSOR] = shares.tensor * work
        block[Column.DRAM] = shares.dram * work
        block[Column.FP32] = 0.12 * shares.sm * work
        block[Column.FP16] = 0.25 * shares.tensor * work
        block[Column.INT] = 0.15 * shares.sm * work
        block[Column.GRAPHICS] = use
        block[Column.SM : Column.GRAPHICS + 1, self._no_gpm] = np.nan
        block[Column.POWER_LIMIT] = running.power_limit_w
        block[Column.POWER] = power
        block[Column.POWER_AVERAGE] = average
        block[Column.ENERGY] = average * np.float32(dt_s)
        block[Column.TEMPERATURE] = np.round(self._temperature_cel)
        block[Column.MEMORY_TEMPERATURE] = np.round(self._temperature_cel + 7.0)
        block[Column.MARGIN] = site.slowdown_cel - block[Column.TEMPERATURE]
        block[Column.SM_CLOCK] = clock
        block[Column.HOT] = hot
        block[Column.HOT_TIME] = hot * np.float32(dt_s)
        block[Column.BRAKED], block[Column.BRAKED_TIME] = braked, braked * np.float32(dt_s)
        pcie = site.pcie_bytes_per_s * np.float32(dt_s)
        block[Column.PCIE_IN] = pcie * shares.pcie * work
        block[Column.PCIE_OUT] = pcie * (0.5 * shares.pcie * work + 0.4 * io)
        links = site.nvlink_bytes_per_s * shares.nvlink * work * np.float32(dt_s)
        block[Column.NVLINK_IN] = links
        block[Column.NVLINK_OUT] = links
        block[Column.PROCESSES] = tenant < len(running.use)
        for column in ERRORS:
            block[column] = 0.0
        for one in faulty:
            block[Column.CORRECTED, one.row] = one.corrected
            block[Column.UNCORRECTED, one.row] = one.uncorrected
            block[Column.REMAP, one.row] = one.dead
            block[Column.RECOVERY, one.row] = DRAIN_AND_RESET if one.dead else 0
            block[Column.NVLINK_ERRORS, one.row] = one.nvlink_errors
            block[Column.PCIE_REPLAYS, one.row] = one.pcie_errors
        if not any(one.lost for one in faulty):
            return block
        seen = block.copy()
        seen[:, [one.row for one in faulty if one.lost]] = np.nan
        return seen
