"""What reading GPUs costs: the agent as a process, and its reads beside the same ones through nvidia-ml-py.

All of it runs against the stand-in for NVML in ``tests/nvml_stub``, whose calls cost next to nothing: so this is
the cost of the agent, without that of the driver. CPU time, not wall time, since other work on the machine
stretches the latter.
"""

import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker
from tests.nvml_stub.stub import NARROW, POWER_RING, STATE_VARIABLE, NvmlStub, compile_stub

from flyball_collectors.nvml import NvmlCollector, open_nvml
from flyball_collectors.parameters import GpuParameters
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.topics import TELEMETRY

NS_PER_S = 1_000_000_000
LINKS = 18
NEW_SAMPLES = 10  # in each ring and second: the 10 Hz of the goal
DETAIL_FIELDS = (*range(173, 181), 29, 30, 142, 143, 145, 187, 188, 189, 192, 76, 77, 78, 79, 269, 270, 271)
LINK_FIELDS = (161, 162, 163, 165, 221)
FIELDS = (3, 4, 38, 45, 52, 59, 160, 74, 75, 82, 83, 94, 144, 185, 186, 197, 198, 230)
GPM = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 248, 249)

CHILD = """
import json, resource, sys, threading, time
from flyball_cli.commands.services.agent_command import lighten
lighten()
from flyball_collectors.agent.loop import AgentLoop
from flyball_collectors.agent.run import run_agent
from flyball_contracts.config import Config, KafkaConfig
from flyball_collectors.parameters import AgentParameters, GpuParameters

bootstrap, state, period_s, ticks = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
agent = AgentParameters(node="bench", state_dir=state, period_s=period_s, gpu=GpuParameters(detail_period_s=period_s))
stop, marks = threading.Event(), []  # a mark for each tick: the agent waits oftener than it ticks

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def mark():
    marks.append((time.process_time(), time.time(), rss()))

take = AgentLoop.take

def taken(loop, tick):
    mark()
    take(loop, tick)

AgentLoop.take = taken
ready = []

def wait(seconds):
    ready or ready.append((time.process_time(), time.time()))
    return stop.wait(seconds)

report = run_agent(Config(agent=agent, kafka=KafkaConfig(bootstrap=bootstrap)), stop=stop, max_ticks=ticks, wait=wait)
with open(state + "/cost.json", "w") as file:
    counts = {"ticks": report.ticks, "frames": report.frames, "dropped": report.dropped}
    json.dump({"marks": marks, "ready": ready[0], **counts}, file)
"""


class AgentCost(NamedTuple):
    """What an agent cost.

    ``share`` is of one core, all threads included: CPU time from one tick to another over the ticks between, as if
    they came once a second. ``by_kernel`` is the same by another way: what the kernel counts for the process, read from
    outside of it, over the wall time in between; it is a share at 1 Hz only where the ticks come so. ``ready_s`` is
    from the start of the process until it is ready for its first tick and its first record is queued, ``ready_cpu_s``
    the same in CPU time.
    RSS is in MiB: after the first ticks, half-way and at the end.
    """

    gpus: int
    period_s: float
    ticks: int
    share: float
    by_kernel: float
    ready_s: float
    ready_cpu_s: float
    rss_first_mib: float
    rss_half_mib: float
    rss_mib: float


class Memory(NamedTuple):
    """Resident memory in MiB of ``flyball agent`` as its unit starts it (-OO), read from outside after some ticks.

    ``pss_mib`` has the pages of libraries by the share of each process that has them, ``private_mib`` the pages that
    no other process has. ``stand_in_mib`` of the RSS are the state of the stand-in for NVML.
    """

    gpus: int
    rss_mib: float
    pss_mib: float
    private_mib: float
    stand_in_mib: float
    threads: int


class ReadCost(NamedTuple):
    """CPU milliseconds of one full read of all GPUs: ours, and by nvidia-ml-py; medians over the rounds."""

    gpus: int
    ours_ms: float
    plain_ms: float


def fill(stub: NvmlStub, gpus: int) -> None:
    """Give every GPU all values that it can have."""
    stub.set_gpus(gpus)
    stub.state.poll_ms = 200  # as long as the agent waits at a time: the stand-in's own polling is not the agent's cost
    stub.set_switched(LINKS)
    for gpu in range(gpus):
        stub.gpu(gpu).threshold[:] = (92, 87)
        stub.set_processes([(100 + gpu, 1 << 30, 60, 1000), (200 + gpu, 2 << 30, 20, 1000)], gpu=gpu)
        for field in (*FIELDS, *DETAIL_FIELDS):
            stub.set_field(field, 0, gpu=gpu)
        for field in LINK_FIELDS:
            for link in range(LINKS):
                stub.set_field(field, 1, gpu=gpu, scope=link, kind=NARROW)
        stub.set_field(186, 300_000, gpu=gpu)
    renew(stub, gpus, 0)


def renew(stub: NvmlStub, gpus: int, tick: int, period_s: float = 1.0) -> None:
    """Have new samples in every ring."""
    step_us = round(1e6 * period_s / NEW_SAMPLES)
    start_us = 1_000_000 + step_us * NEW_SAMPLES * tick
    for gpu in range(gpus):
        for ring, value in ((POWER_RING, 300_000), (1, 50)):
            stub.set_samples([(start_us + step_us * i, value) for i in range(NEW_SAMPLES)], gpu=gpu, ring=ring)


def agent(gpus: int, *, ticks: int, period_s: float) -> AgentCost:
    """Run the whole agent, sending to an embedded broker in this process."""
    with tempfile.TemporaryDirectory(prefix="flyball-bench-") as name:
        folder = Path(name)
        stub = NvmlStub(folder / "gpus", gpus)
        fill(stub, gpus)
        with EmbeddedBroker({}) as broker:
            command = [sys.executable, "-c", CHILD, broker.bootstrap, name, str(period_s), str(ticks)]
            began_s = time.time()
            child = subprocess.Popen(command, env=_environment(stub))
            tick = 0
            looks: list[tuple[float, float]] = []  # wall and CPU time of the child
            while child.poll() is None:
                tick += 1
                renew(stub, gpus, tick, period_s)
                time.sleep(period_s)
                looks.append((time.monotonic(), _cpu_s(child.pid)))
        if child.returncode:
            raise AssertionError(f"the agent ended with {child.returncode}")
        cost = json.loads((folder / "cost.json").read_text())
    if cost["dropped"] or cost["ticks"] != ticks:
        raise AssertionError(f"the agent took {cost['ticks']} ticks and dropped {cost['dropped']} records")
    marks: list[tuple[float, float, int]] = cost["marks"]
    if len(marks) != ticks:
        raise AssertionError(f"{len(marks)} marks of {ticks} ticks")
    begins = min(5, ticks // 4)
    ready, first, last = cost["ready"], marks[begins], marks[-1]
    (from_s, from_cpu_s), (to_s, to_cpu_s) = looks[begins + 2], looks[-3]
    return AgentCost(
        gpus,
        period_s,
        ticks,
        (last[0] - first[0]) / (ticks - 1 - begins),
        (to_cpu_s - from_cpu_s) / (to_s - from_s),
        ready[1] - began_s,
        ready[0],
        first[2] / 2**20,
        marks[len(marks) // 2][2] / 2**20,
        last[2] / 2**20,
    )


def memory(gpus: int, *, frames: int) -> Memory:
    """Run ``flyball agent`` itself until so many frames have arrived, some each second, and look at its memory then."""
    with tempfile.TemporaryDirectory(prefix="flyball-bench-") as name:
        folder = Path(name)
        stub = NvmlStub(folder / "gpus", gpus)
        fill(stub, gpus)
        config = folder / "flyball.yaml"
        config.write_text(json.dumps({"agent": {"node": "bench", "state_dir": name, "period_s": 1.0}}))
        with EmbeddedBroker({TELEMETRY.name: 1}) as broker:
            command = [sys.executable, "-OO", "-m", "flyball_cli", "agent", "--config", str(config)]
            environment = _environment(stub) | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
            subprocess.run([*command, "--once"], env=environment, stdout=subprocess.DEVNULL, check=True)  # compiles
            child = subprocess.Popen([*command, "--bootstrap", broker.bootstrap], env=environment)
            reader, tick = Consumer(consumer_settings(broker.bootstrap, group="bench", client_id="bench")), 0
            while reader.get_watermark_offsets(TopicPartition(TELEMETRY.name, 0), 10.0)[1] < frames:
                if child.poll() is not None:
                    raise AssertionError(f"the agent ended with {child.returncode}")
                time.sleep(1.0)
                renew(stub, gpus, tick := tick + 1)
            reader.close()
            seen = Path(f"/proc/{child.pid}")
            rollup, maps = (seen / "smaps_rollup").read_text(), (seen / "smaps").read_text()
            threads = len(list((seen / "task").iterdir()))
            child.terminate()
            child.wait()
    kib = {key: float(size) for key, size in re.findall(r"^(\w+): +(\d+) kB$", rollup, re.MULTILINE)}
    mapped = re.findall(rf"{re.escape(str(stub.path))}\n(?:\w+: .*\n)*?Rss: +(\d+) kB", maps)
    return Memory(
        gpus,
        kib["Rss"] / 1024,
        kib["Pss"] / 1024,
        (kib["Private_Clean"] + kib["Private_Dirty"]) / 1024,
        sum(map(float, mapped)) / 1024,
        threads,
    )


def _environment(stub: NvmlStub) -> dict[str, str]:
    """Environment of a process that finds the stand-in as it would find the driver's library."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(_library().parent),
        STATE_VARIABLE: str(stub.path),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def _cpu_s(pid: int) -> float:
    """CPU time of another process, all its threads, by the kernel's clock of it; NaN once it has ended."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return float("nan")


def reads(gpus: int, *, rounds: int, passes: int) -> ReadCost:
    """Read the same by our collector and by nvidia-ml-py, in turn, in this process."""
    with tempfile.TemporaryDirectory(prefix="flyball-bench-") as place:
        folder = Path(place)
        library = ctypes.CDLL(str(_library()))
        stub = NvmlStub(folder / "gpus", gpus)
        fill(stub, gpus)
        if not library.stub_open(os.fsencode(stub.path)):
            raise AssertionError("the stand-in does not open its state")
        collector = open_nvml("bench", settings=GpuParameters(detail_period_s=1e-9))
        if not isinstance(collector, NvmlCollector):
            raise AssertionError(collector.reason)
        plain = Plain(gpus)
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda: collector.read(NS_PER_S, NS_PER_S),
            "plain": plain.read,
        }
        time.sleep(0.11)
        for side in sides.values():
            side()
        taken: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(rounds):
            spent = dict.fromkeys(sides, 0.0)
            for turn in range(passes):
                renew(stub, gpus, 1 + number * passes + turn)
                time.sleep(0.11)  # GPM refuses samples that are closer than that
                for name in list(sides)[:: 1 if turn % 2 else -1]:
                    before_s = time.process_time()
                    sides[name]()
                    spent[name] += time.process_time() - before_s
            for name, spent_s in spent.items():
                taken[name].append(1000 * spent_s / passes)
        collector.close()
        library.stub_open(None)
    return ReadCost(gpus, statistics.median(taken["ours"]), statistics.median(taken["plain"]))


class Plain:
    """The same reads as one would write them with nvidia-ml-py, values in a dict for each GPU."""

    def __init__(self, gpus: int) -> None:
        import pynvml  # type: ignore[import-untyped]

        self._nvml: Any = pynvml
        self._nvml.nvmlInit()
        self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(gpus)]
        self._fields = [(f, 0) for f in (*FIELDS, *DETAIL_FIELDS)] + [(138, 0xFFFFFFFF), (139, 0xFFFFFFFF)]
        self._fields += [(field, link) for field in LINK_FIELDS for link in range(LINKS)]
        self._after = [[0, 0, 0] for _ in self._handles]
        self._samples = [(self._sample(h), self._nvml.nvmlGpmSampleAlloc()) for h in self._handles]

    def read(self) -> list[dict[str, float]]:
        """Read everything of every GPU."""
        return [self._one(place, handle) for place, handle in enumerate(self._handles)]

    def _sample(self, handle: Any) -> Any:
        return self._nvml.nvmlGpmSampleGet(handle, self._nvml.nvmlGpmSampleAlloc())

    def _one(self, place: int, handle: Any) -> dict[str, float]:
        n, found = self._nvml, dict[str, float]()
        for field in n.nvmlDeviceGetFieldValues(handle, self._fields):
            if field.nvmlReturn == 0:
                wide = field.valueType == n.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
                value = field.value.ullVal if wide else field.value.uiVal
                found[f"field {field.fieldId} {field.scopeId}"] = float(value)
        for ring in (0, 1):
            answer: tuple[int, list[Any]] | None = self._or_none(
                n.nvmlDeviceGetSamples, handle, ring, self._after[place][ring]
            )
            samples = answer[1] if answer else []
            values = sorted(sample.sampleValue.uiVal for sample in samples)
            if values:
                self._after[place][ring] = max(sample.timeStamp for sample in samples)
                found |= {f"ring {ring} mean": sum(values) / len(values), f"ring {ring} max": values[-1]}
        rates, memory = n.nvmlDeviceGetUtilizationRates(handle), n.nvmlDeviceGetMemoryInfo(handle, n.nvmlMemory_v2)
        found |= {"gpu": rates.gpu / 100, "controller": rates.memory / 100}
        found |= {"used": memory.used, "total": memory.total, "reserved": memory.reserved}
        found["encoder"] = n.nvmlDeviceGetEncoderUtilization(handle)[0]
        found["decoder"] = n.nvmlDeviceGetDecoderUtilization(handle)[0]
        found["bar1"] = n.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Used
        for name in ("EnforcedPowerLimit", "MarginTemperature", "CurrentClocksEventReasons", "PerformanceState"):
            found[name] = getattr(n, f"nvmlDeviceGet{name}")(handle)
        for name in ("FanSpeed", "CurrPcieLinkGeneration", "MaxPcieLinkGeneration", "CurrPcieLinkWidth"):
            found[name] = getattr(n, f"nvmlDeviceGet{name}")(handle)
        found["MaxPcieLinkWidth"] = n.nvmlDeviceGetMaxPcieLinkWidth(handle)
        found["temperature"] = n.nvmlDeviceGetTemperatureV(handle, 0)
        for clock in (1, 2, 3):
            found[f"clock {clock}"] = n.nvmlDeviceGetClockInfo(handle, clock)
        for threshold in (0, 1):
            found[f"threshold {threshold}"] = n.nvmlDeviceGetTemperatureThreshold(handle, threshold)
        for kind in (0, 1):
            found[f"ecc {kind}"] = n.nvmlDeviceGetMemoryErrorCounter(handle, kind, 1, 2)
        sram, fabric = n.c_nvmlEccSramErrorStatus_v1_t(), n.c_nvmlGpuFabricInfo_v2_t()
        n.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(sram))
        n.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(fabric))
        found |= {"sram": sram.aggregateCor, "fabric": fabric.state}
        banks = n.nvmlDeviceGetRowRemapperHistogram(handle)
        found |= {"banks max": banks.max, "banks none": banks.none}
        found["mig"] = n.nvmlDeviceGetMigMode(handle)[0]
        for process in n.nvmlDeviceGetComputeRunningProcesses_v3(handle):
            found[f"process {process.pid}"] = float(process.usedGpuMemory or 0)
        shares: list[Any] = self._or_none(n.nvmlDeviceGetProcessUtilization, handle, self._after[place][2]) or []
        for share in shares:
            found[f"share {share.pid}"] = share.smUtil / 100
            self._after[place][2] = max(self._after[place][2], share.timeStamp)
        return found | self._activity(place, handle)

    def _activity(self, place: int, handle: Any) -> dict[str, float]:
        n = self._nvml
        before, spare = self._samples[place]
        after = n.nvmlGpmSampleGet(handle, spare)
        get = n.c_nvmlGpmMetricsGet_t()
        get.version, get.numMetrics, get.sample1, get.sample2 = 1, len(GPM), before, after
        for position, metric in enumerate(GPM):
            get.metrics[position].metricId = metric
        n.nvmlGpmMetricsGet(get)
        self._samples[place] = after, before
        return {f"gpm {metric}": get.metrics[position].value for position, metric in enumerate(GPM)}

    def _or_none(self, function: Callable[..., Any], *args: object) -> Any:
        try:
            return function(*args)
        except self._nvml.NVMLError_NotFound:  # nothing is new
            return None


@cache
def _library() -> Path:
    """The stand-in, once: a process that has it loaded finds it again, and no other."""
    library = compile_stub(Path(tempfile.mkdtemp(prefix="flyball-bench-")))
    if library is None:
        raise SystemExit("no C compiler (cc) to build the stand-in for NVML; install gcc")
    return library
