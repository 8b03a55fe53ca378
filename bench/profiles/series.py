"""Frame columns of generated workloads."""

from typing import NamedTuple

import numpy as np
from bench.profiles.draws import Doubles, Draws, Part
from bench.profiles.labels import FAMILIES
from bench.profiles.load import Load, loads
from bench.profiles.work import STAGES, Work, drawn
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU, HOST, WORKLOAD

Floats = NDArray[np.float32]
GPM = [GPU.column("nvidia.gpu.sm.activity") + i for i in range(8)]
"""Columns that only some GPU generations report: from SM activity to the integer pipe."""
CPUS = 128.0
IDLE_BELOW = 0.05


class Series(NamedTuple):
    """T samples of N GPUs, each of another workload; a sample covers the second before it.

    ``gpu`` float32[T, N, metrics], ``host`` and ``page`` (workload frames) accordingly; NaN if not reported.
    ``times_s`` [T], ``devices`` and ``on_node`` [N] as in :class:`~bench.profiles.work.Work`; ``step_s``
    [N] is the true length of a training step, NaN for other kinds.
    """

    kind: list[str]
    family: list[str]
    bound: list[str]
    times_s: Doubles
    gpu: Floats
    host: Floats
    page: Floats
    devices: Doubles
    on_node: Doubles
    step_s: Doubles


def generate(
    count: int,
    seed: int,
    *,
    families: tuple[str, ...] = FAMILIES,
    part: Part = "trained",
    seconds: int = 300,
    every_s: int = 5,
) -> Series:
    """Draw ``count`` workloads and their telemetry over ``seconds``, sampled every ``every_s``.

    The same arguments give the same series. ``part`` selects the part of each range from which parameters are drawn,
    see :data:`~bench.profiles.draws.FIFTHS`.
    """
    draws = Draws(np.random.default_rng([seed, count, *map(ord, part)]), count, part)
    work = drawn(draws, families)
    load = loads(draws, work, seconds)
    at = np.arange(every_s - 1, seconds, every_s)
    load = Load(load.active[at], load.saving[at], load.evaluating[at], load.requests[at], load.queued[at], load.cost_s)
    step_s = draws(*work.of("step_s"), log=True)
    gone = _stages(draws, work, load, step_s, at)
    machine = _Machine(draws)
    gpu, pcie = _gpu(draws, work, load, gone, step_s, machine)
    host = _host(draws, work, load, gone, machine, pcie)
    learns = work.is_kind("training", "fine_tuning")
    return Series(
        kind=work.kind,
        family=work.family,
        bound=_bounds(work, load, gone),
        times_s=(at + 1).astype(np.float64),
        gpu=gpu,
        host=host,
        page=_workload_rows(draws, work, load, step_s),
        devices=work.devices,
        on_node=work.on_node,
        step_s=np.where(learns, step_s, np.nan),
    )


class _Machine:
    """Peak rates of each workload's node, [N]: PCIe, NVLink, network card and disk, in bytes per second."""

    def __init__(self, draws: Draws) -> None:
        self.pcie = draws(12e9, 55e9, log=True)
        self.nvlink = draws(150e9, 450e9, log=True)
        self.nic = draws(3e9, 50e9, log=True)
        self.disk = draws(0.3e9, 3e9, log=True)
        self.remote = draws.chance(0.4)
        self.power_limit_w = draws(150.0, 1000.0, log=True)
        self.memory_bytes = draws(16e9, 192e9, log=True)


def _stages(draws: Draws, work: Work, load: Load, step_s: Doubles, at: NDArray[np.int64]) -> Doubles:
    """Share of each sampled second in each stage, [stages, T, N]; exact for steps longer than a second."""
    ends = np.cumsum(work.stages, axis=0)
    starts = ends - work.stages
    phase = draws.random.random(draws.count)
    drift = np.cumsum(0.02 * draws.random.standard_normal((len(at), draws.count)), axis=0)
    regular = work.is_kind("training", "fine_tuning", "batch")
    length_s = np.where(regular, step_s, 1e-3)  # of what is not in step only the mean shows

    def spent(position: Doubles) -> Doubles:
        laps = np.floor(position)[None]
        inside = np.clip((position - laps[0])[None] - starts[:, None], 0.0, (ends - starts)[:, None])
        return np.asarray(laps * work.stages[:, None] + inside, np.float64)

    last = (at[:, None] + 1.0) / length_s + phase + drift
    share = (spent(last) - spent(last - 1.0 / length_s)) * length_s
    noise = 1.0 + 0.04 * draws.random.standard_normal(share.shape)
    return np.asarray(np.clip(share * noise, 0.0, 1.0) * load.active, np.float64)


def _bounds(work: Work, load: Load, gone: Doubles) -> list[str]:
    """Bottleneck labels over the whole series; ``idle`` if hardly anything ran, whatever was drawn."""
    idle = (load.active.mean(axis=0) < IDLE_BELOW).tolist()
    longest = gone.mean(axis=1).argmax(axis=0).tolist()
    return [
        "idle" if idles else STAGES[at] if bound == "idle" else bound
        for bound, idles, at in zip(work.bound, idle, longest, strict=True)
    ]


def _gpu(
    draws: Draws, work: Work, load: Load, gone: Doubles, step_s: Doubles, machine: _Machine
) -> tuple[Floats, Doubles]:
    """GPU columns float32[T, N, metrics], and the PCIe bytes per second into the device [T, N]."""
    n, ticks = draws.count, gone.shape[1]
    stage = dict(zip(STAGES, gone, strict=True))
    compute, memory, offload = stage["compute"], stage["memory_bandwidth"], stage["memory_capacity"]
    link, net = stage["interconnect"], stage["network"]
    language = np.array([f == "transformer" for f in work.family]) & work.is_kind("inference")
    block = np.full((len(GPU), ticks, n), np.nan)

    def put(key: str, value: Doubles, noise: float = 0.03) -> None:
        """Set a share."""
        shaken = value * (1.0 + noise * draws.random.standard_normal((ticks, n)))
        block[GPU.column(key)] = np.clip(shaken, 0.0, 1.0)

    use = np.clip(compute + memory + link + net + 0.35 * offload, 0.0, 1.0)
    put("hw.gpu.utilization{task=general}", use, 0.01)
    use = block[GPU.column("hw.gpu.utilization{task=general}")]
    rough = np.clip(np.where(work.is_kind("training", "fine_tuning", "batch"), step_s, 0.5) / 0.6, 0.0, 1.0)
    put("nvidia.gpu.utilization.min", use * np.where(use < 0.99, 1.0 - rough, 1.0))
    put("nvidia.gpu.utilization.max", use + (1.0 - use) * rough * (use > 0.01))
    put("nvidia.gpu.utilization.p95", block[GPU.column("nvidia.gpu.utilization.max")] * 0.98)
    block[GPU.column("nvidia.gpu.busy.time")] = use
    tensor = draws(*work.of("tensor"))
    sm = compute * draws(*work.of("sm")) + memory * draws(0.70, 0.97) + 0.15 * link + 0.08 * net + 0.1 * offload
    dram = compute * draws(0.12, 0.40) + memory * draws(0.66, 0.93) + 0.12 * link + 0.12 * offload
    pipes = compute + memory * draws(0.05, 0.30)
    put("nvidia.gpu.sm.activity", sm)
    put("nvidia.gpu.sm.occupancy", sm * draws(*work.of("occupancy")))
    put("nvidia.gpu.tensor.activity", pipes * tensor * np.where(load.evaluating > 0, 0.9, 1.0))
    put("nvidia.gpu.dram.bandwidth.utilization", dram)
    for key, trait in (
        ("nvidia.gpu.fp.activity{precision=64}", "fp64"),
        ("nvidia.gpu.fp.activity{precision=32}", "fp32"),
        ("nvidia.gpu.fp.activity{precision=16}", "fp16"),
        ("nvidia.gpu.int.activity", "integer"),
    ):
        put(key, (compute + 0.5 * memory) * draws(*work.of(trait)))
    block[GPM] = np.where(draws.chance(0.25), np.nan, block[GPM])
    put("nvidia.gpu.memory.controller.utilization", np.clip(1.15 * dram, 0.0, 1.0))
    put("hw.gpu.utilization{task=decoder}", (compute + memory) * draws(*work.of("decoder")))
    encodes = work.is_kind("inference", "batch") & np.array([f == "video" for f in work.family])
    put("hw.gpu.utilization{task=encoder}", (compute + memory) * draws(0.05, 0.6) * encodes)
    held = draws(*work.of("memory")) * _held(draws, work)
    held = np.where(language, draws(0.80, 0.95), held)
    held = np.where([b == "memory_capacity" for b in work.bound], draws(0.945, 0.995), held)
    put("hw.gpu.memory.utilization", np.broadcast_to(held, (ticks, n)), 0.001)
    block[GPU.column("hw.gpu.memory.limit")] = machine.memory_bytes
    used = block[GPU.column("hw.gpu.memory.utilization")]
    block[GPU.column("hw.gpu.memory.usage")] = used * machine.memory_bytes
    activity = 0.45 * pipes * tensor + 0.30 * dram + 0.25 * sm + 0.15 * compute * draws(*work.of("fp32"))
    put("hw.power", draws(0.08, 0.2) + draws(0.75, 1.1) * activity, 0.02)
    block[GPU.column("hw.power")] *= machine.power_limit_w
    block[GPU.column("nvidia.gpu.power.limit{type=enforced}")] = machine.power_limit_w

    into = (compute + memory) * draws(*work.of("pcie"), log=True) + 0.15 * stage["input"]
    into = into + offload * draws(0.5, 0.9)
    out = np.where(work.is_kind("training", "fine_tuning"), draws(0.01, 0.05), draws(0.2, 1.2))
    back = into * out + offload * draws(0.4, 0.8) + load.saving * draws(0.05, 0.4)
    joined = work.devices > 1
    heavy = np.array([f in ("transformer", "recommendation") for f in work.family])
    steady = np.where(heavy, draws(0.05, 0.25), draws(0.01, 0.08)) * np.where(
        work.is_kind("training"), 1.0, np.where(work.is_kind("fine_tuning"), 0.25, 0.35)
    )
    across = link * draws(0.45, 0.9) + (compute + memory) * steady * (joined & ~work.is_kind("batch"))
    rates = {
        "hw.gpu.io{direction=receive}": into * machine.pcie,
        "hw.gpu.io{direction=transmit}": back * machine.pcie,
        "nvidia.gpu.nvlink.io{direction=receive}": across * machine.nvlink,
        "nvidia.gpu.nvlink.io{direction=transmit}": across * machine.nvlink,
    }
    for key, rate in rates.items():
        block[GPU.column(key)] = rate * (1.0 + 0.05 * draws.random.standard_normal((ticks, n)))
    return np.ascontiguousarray(block.transpose(1, 2, 0), np.float32), into * machine.pcie


def _held(draws: Draws, work: Work) -> Doubles:
    """Share of a training job's GPU memory that each kind uses."""
    parts = {"training": (0.9, 1.0), "fine_tuning": (0.6, 1.0), "inference": (0.2, 0.7), "batch": (0.4, 0.9)}
    low = np.array([parts.get(kind, (0.05, 0.7))[0] for kind in work.kind])
    high = np.array([parts.get(kind, (0.05, 0.7))[1] for kind in work.kind])
    return draws(low, high)


def _host(draws: Draws, work: Work, load: Load, gone: Doubles, machine: _Machine, pcie: Doubles) -> Floats:
    """Host columns: the node runs this work alone, or with neighbours that use its CPUs and disks."""
    n, ticks = draws.count, gone.shape[1]
    stage = dict(zip(STAGES, gone, strict=True))
    busy = stage["compute"] + stage["memory_bandwidth"] + stage["input"]
    alone = np.where(draws.chance(0.7), 1.0, draws(0.3, 0.8))
    noise = draws.random.standard_normal((3, ticks, n))
    cpu = busy * draws(*work.of("cpu")) + stage["input"] * draws(0.5, 0.9)
    cpu = np.clip(alone * cpu + (1.0 - alone) * draws(0.02, 0.4) + 0.01 * noise[0], 0.001, 1.0)
    waits = stage["storage"]
    iowait = np.clip(waits * draws(0.03, 0.25) + load.saving * 0.03, 0.0, 1.0 - cpu)
    pressed = np.clip(stage["input"] * draws(0.3, 0.9) + 0.02 * cpu, 0.0, 1.0)
    stalled = np.clip(waits * draws(0.4, 0.95) + 0.2 * load.saving + 0.005, 0.0, 1.0)
    read = waits * machine.disk * ~machine.remote + 0.05 * pcie * work.on_node * draws.chance(0.5) + 1e5
    writes = np.where(work.is_kind("batch"), draws(1e5, 5e7, log=True), draws(1e4, 1e6, log=True))
    write = writes * (0.2 + busy) + load.saving * machine.disk
    joined = work.devices > 8
    steady = draws(0.03, 0.2) * joined * work.is_kind("training")
    net = (stage["network"] * draws(0.5, 0.95) + busy * steady) * machine.nic * work.on_node
    net = net + waits * machine.remote * machine.disk + draws(1e4, 2e6, log=True)
    values = {
        "system.cpu.utilization": cpu,
        "system.cpu.time{mode=user}": 0.85 * cpu * CPUS,
        "system.cpu.time{mode=system}": 0.15 * cpu * CPUS,
        "system.cpu.time{mode=idle}": (1.0 - cpu - iowait) * CPUS,
        "system.cpu.time{mode=iowait}": iowait * CPUS,
        "system.cpu.logical.count": np.full((ticks, n), CPUS),
        "system.linux.psi.total_time{resource=cpu,stall=some}": pressed,
        "system.linux.psi.total_time{resource=io,stall=some}": stalled,
        "system.linux.psi.total_time{resource=io,stall=full}": 0.6 * stalled,
        "system.disk.io{direction=read}": read * (1.0 + 0.1 * noise[1]),
        "system.disk.io{direction=write}": write * (1.0 + 0.1 * noise[1]),
        "system.network.io{direction=receive}": net * (1.0 + 0.05 * noise[2]),
        "system.network.io{direction=transmit}": net * (1.0 - 0.05 * noise[2]),
    }
    block = np.full((len(HOST), ticks, n), np.nan)
    for key, value in values.items():
        block[HOST.column(key)] = np.maximum(value, 0.0)
    block[:, :, draws.chance(0.1)] = np.nan
    return np.ascontiguousarray(block.transpose(1, 2, 0), np.float32)


def _workload_rows(draws: Draws, work: Work, load: Load, step_s: Doubles) -> Floats:
    """Workload frame columns, which half of the replicas report."""
    n, ticks = draws.count, len(load.active)
    block = np.full((len(WORKLOAD), ticks, n), np.nan)
    serves, learns = work.is_kind("inference"), work.is_kind("training", "fine_tuning")
    reports = draws.chance(np.where(serves, 0.6, 0.5))
    language = np.array([f == "transformer" for f in work.family]) & serves & reports
    prompt, answer = draws(100.0, 4000.0, log=True), draws(30.0, 800.0, log=True)
    values = {
        "flyball.workload.request.rate": (load.requests, serves & reports),
        "flyball.workload.work.rate": (load.requests, serves & reports),
        "flyball.workload.request.active": (np.minimum(load.requests * load.cost_s, 64.0), serves & reports),
        "flyball.workload.request.queued": (load.queued, serves & reports),
        "flyball.workload.latency{stat=mean}": (load.cost_s * (1.0 + load.queued), serves & reports),
        "flyball.workload.token.rate{kind=input}": (load.requests * prompt, language),
        "flyball.workload.token.rate{kind=output}": (load.requests * answer, language),
        "flyball.workload.step.time": (step_s / np.maximum(load.active, 0.05), learns & reports),
        "flyball.workload.steps": (load.active / step_s, learns & reports),
        "flyball.workload.progress": (np.full((ticks, n), 0.5), work.is_kind("training", "batch") & reports),
    }
    for key, (value, who) in values.items():
        block[WORKLOAD.column(key)] = np.where(who, value, np.nan)
    block[WORKLOAD.column("flyball.workload.ready")] = np.where(reports, 1.0, np.nan)
    return np.ascontiguousarray(block.transpose(1, 2, 0), np.float32)
