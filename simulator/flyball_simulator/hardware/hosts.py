"""Hosts of the simulated nodes: CPU, memory, disk and network, driven by the work of their GPUs."""

import numpy as np
from numpy.random import Generator

from flyball_contracts.metrics import HOST
from flyball_simulator.cell.placement import Rows
from flyball_simulator.hardware.gpus import Gpus
from flyball_simulator.hardware.site import Floats, Site
from flyball_simulator.loads import Running

CPUS = 128
MEMORY_BYTES = 2**41
CHECKPOINT_BYTES_PER_S = 1.2e9
"""Disk writes of one GPU's share of a checkpoint."""
UPTIME_S = 400_000.0


class Hosts:
    """All M hosts; they differ only by noise and by their replicas."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._block = np.full((len(HOST), len(site.nodes)), np.nan, np.float32)
        self._uptime_s = UPTIME_S + 977.0 * np.arange(len(site.nodes))

    def step(self, t_s: float, dt_s: float, random: Generator, running: Running, rows: Rows, gpus: Gpus) -> Floats:
        """Advance ``dt_s`` seconds; returns the columns as float32[metrics, M]."""
        site, m = self._site, len(self._site.nodes)
        work = np.append(running.work, np.float32(0.0))[rows.of_gpu]
        io = np.append(running.io, np.float32(0.0))[rows.of_gpu]
        held = rows.of_gpu < len(running.work)
        size = np.diff(site.starts)

        def total(per_gpu: Floats) -> Floats:
            return np.bincount(site.node_of, per_gpu, m).astype(np.float32)

        noise = random.standard_normal((3, m), np.float32)
        writes = total(io)
        busy = np.clip(0.02 + total(work * gpus.usage_shares.cpu) / size + 0.004 * noise[0], 0.001, 1.0)
        iowait = np.clip(0.02 * writes / size, 0.0, 1.0 - busy)
        cpu_s = CPUS * dt_s
        used = MEMORY_BYTES * (0.04 + 0.5 * total(held.astype(np.float32)) / size + 0.0005 * noise[1])
        cached = MEMORY_BYTES * np.full(m, 0.18, np.float32)
        read = 2e6 + 3e7 * total(work * gpus.usage_shares.pcie)
        network = 4e5 + 6e8 * total(work * gpus.usage_shares.nvlink)
        values = {
            "system.cpu.utilization": busy,
            "system.cpu.time{mode=user}": 0.85 * busy * cpu_s,
            "system.cpu.time{mode=system}": 0.15 * busy * cpu_s,
            "system.cpu.time{mode=idle}": (1.0 - busy - iowait) * cpu_s,
            "system.cpu.time{mode=iowait}": iowait * cpu_s,
            "system.cpu.logical.count": np.full(m, CPUS),
            "system.memory.limit": np.full(m, float(MEMORY_BYTES)),
            "system.memory.usage{state=used}": used,
            "system.memory.usage{state=cached}": cached,
            "system.memory.linux.available": MEMORY_BYTES - used,
            "system.memory.utilization": used / MEMORY_BYTES,
            "system.linux.psi.total_time{resource=cpu,stall=some}": 0.02 * busy * dt_s,
            "system.linux.psi.total_time{resource=io,stall=some}": np.minimum(0.05 * writes / size, 1.0) * dt_s,
            "system.linux.psi.total_time{resource=io,stall=full}": np.minimum(0.03 * writes / size, 1.0) * dt_s,
            "system.disk.io{direction=read}": read * dt_s,
            "system.disk.io{direction=write}": (1e6 + CHECKPOINT_BYTES_PER_S * writes) * dt_s,
            "system.disk.operation_time{direction=read}": 0.002 * dt_s * np.ones(m),
            "system.disk.operation_time{direction=write}": np.minimum(0.001 + 0.4 * writes / size, 1.0) * dt_s,
            "system.network.io{direction=receive}": network * (1.0 + 0.02 * noise[2]) * dt_s,
            "system.network.io{direction=transmit}": network * (1.0 - 0.02 * noise[2]) * dt_s,
            "system.process.count": 900.0 + 12.0 * total(held.astype(np.float32)),
            "system.uptime": self._uptime_s + t_s,
            "flyball.agent.cpu.time": np.full(m, 0.004 * dt_s),
            "flyball.agent.memory.rss": np.full(m, 4.2e7),
            "flyball.agent.read.duration": np.full(m, 0.006),
        }
        for key, value in values.items():
            self._block[HOST.column(key)] = value
        return self._block
