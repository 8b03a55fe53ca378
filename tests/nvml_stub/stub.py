"""The test's side of the stand-in for NVML: compile it, and set what its GPUs report."""

import ctypes
import mmap
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml_stub.c")
LIBRARY = "libnvidia-ml.so.1"
STATE_VARIABLE = "FLYBALL_NVML_STUB"
CALLS = (
    "uuid", "name", "serial", "pci", "utilization", "encoder", "decoder", "memory", "bar1", "power", "limit",
    "temperature", "margin", "clock", "reasons", "pstate", "fan", "processes", "samples", "fields", "events",
    "process_utilization", "mig", "gpm", "link", "topology", "architecture", "capability", "pcie", "fabric", "banks",
    "ecc", "sram", "threshold", "memory_v1", "temperature_v1", "mps", "graphics", "register", "energy", "link_errors",
)  # fmt: skip
ALL_LINKS = 0xFFFFFFFF
U32, U64 = ctypes.c_uint32, ctypes.c_uint64
NOT_SUPPORTED, GPU_IS_LOST, UNKNOWN = 3, 15, 999
COMPUTES, MPS, DRAWS, BOTH = 0, 1, 2, 3  # what a process does
WIDE, NARROW = 3, 1  # value types: unsigned long long, unsigned int
POWER_RING, UTILIZATION_RING = 0, 1


class StubField(ctypes.Structure):
    _fields_ = [("id", U32), ("scope", U32), ("type", U32), ("result", U32), ("value", U64)]


class StubSample(ctypes.Structure):
    _fields_ = [("time_us", U64), ("value", U64)]


class StubProcess(ctypes.Structure):
    _fields_ = [("pid", U32), ("sm", U32), ("memory", U64), ("time_us", U64), ("does", U32), ("padding", U32)]


class StubLink(ctypes.Structure):
    _fields_ = [("up", U32), ("far_end", U32), ("bus", U32), ("counters", U32), ("errors", U64 * 5)]


class StubInstance(ctypes.Structure):
    _fields_ = [
        ("used", U32), ("gpu_id", U32), ("compute_id", U32),
        ("gpu_slices", U32), ("compute_slices", U32), ("processes_used", U32),
        ("uuid", ctypes.c_char * 80), ("name", ctypes.c_char * 96), ("memory_mib", U64), ("memory_used", U64),
        ("asked", U32 * 64), ("processes", StubProcess * 64),
    ]  # fmt: skip


class StubGpu(ctypes.Structure):
    _fields_ = [
        ("index", U32),
        ("uuid", ctypes.c_char * 80), ("name", ctypes.c_char * 96), ("serial", ctypes.c_char * 32),
        ("lost", U32), ("was_reset", U32), ("event_kinds", U32), ("hung", U32),
        ("result", U32 * 64), ("asked", U32 * 64),
        ("domain", U32), ("bus", U32), ("device", U32),
        ("utilization", U32), ("memory_utilization", U32), ("encoder", U32), ("decoder", U32),
        ("memory_total", U64), ("memory_reserved", U64), ("memory_used", U64), ("bar1_used", U64),
        ("power_mw", U32), ("limit_mw", U32), ("temperature", U32), ("clock_mhz", U32 * 4), ("margin", ctypes.c_int32),
        ("reasons", U64), ("pstate", U32), ("fan", U32), ("processes_used", U32),
        ("fields_used", U32), ("samples_used", U32 * 2),
        ("mig", U32), ("gpm", U32), ("architecture", U32), ("capability", U32 * 2), ("pcie", U32 * 4),
        ("fabric", U32 * 2), ("banks", U32 * 5), ("common_ancestor", U32), ("gpm_highest", U32), ("exceeded", U32),
        ("threshold", U32 * 2), ("ecc", U64 * 4), ("gpm_value", ctypes.c_double * 512),
        ("fields", StubField * 192), ("samples", StubSample * 128 * 2), ("processes", StubProcess * 64),
        ("links", StubLink * 36), ("instances", StubInstance * 8),
    ]  # fmt: skip


class StubEvent(ctypes.Structure):
    _fields_ = [("gpu", U32), ("unasked", U32), ("kind", U64), ("data", U64)]


class StubState(ctypes.Structure):
    _fields_ = [
        ("init", U32), ("count", U32), ("events", U32), ("fixed", U32),
        ("poll_ms", U32), ("starting", U32),
        ("event", StubEvent * 64), ("gpu", StubGpu * 72),
    ]  # fmt: skip


STRUCTS: dict[str, type[ctypes.Structure]] = {
    "state": StubState, "gpu": StubGpu, "field": StubField, "sample": StubSample, "event": StubEvent,
    "process": StubProcess, "link": StubLink, "instance": StubInstance,
}  # fmt: skip


def compile_stub(folder: Path, without: Sequence[str] = ()) -> Path | None:
    """Library in ``folder``, named and marked (SONAME) as the driver's; ``None`` without a C compiler.

    Functions in ``without`` are not there, as in an older driver; such a library is marked as another one.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / LIBRARY
    hidden: list[str] = []
    if without:
        script = folder / "symbols"
        script.write_text(f"{{ local: {' '.join(name + ';' for name in without)} }};")
        hidden = [f"-Wl,--version-script={script}"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    mark = f"-Wl,-soname,{'old-' if without else ''}{LIBRARY}"
    subprocess.run([compiler, *flags, mark, *hidden, "-o", library, SOURCE], check=True)
    return library


class NvmlStub:
    """GPUs whose values the test sets; the file ``path`` is what the library reads.

    Fresh GPUs answer every call with something plausible and have no samples yet.
    """

    def __init__(self, path: Path, gpus: int = 1) -> None:
        self.path = path
        path.write_bytes(bytes(ctypes.sizeof(StubState)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.state: Any = StubState.from_buffer(self._map)
        self.set_gpus(gpus)

    def set_gpus(self, count: int) -> None:
        """Have that many GPUs, at most 72, all fresh."""
        for index in range(count):
            self._reset(index)
        self.state.count = count

    def gpu(self, index: int = 0) -> Any:
        """Values of one GPU, to read and to set."""
        return self.state.gpu[index]

    def set_field(
        self, field: int, value: int, *, gpu: int = 0, scope: int = 0, kind: int = WIDE, result: int = 0
    ) -> None:
        """Answer of one field id."""
        one = self.gpu(gpu)
        for place in range(one.fields_used):
            if (one.fields[place].id, one.fields[place].scope) == (field, scope):
                break
        else:
            place = one.fields_used
            one.fields_used += 1
        one.fields[place] = StubField(field, scope, kind, result, value)

    def set_result(self, call: str, result: int, *, gpu: int = 0) -> None:
        """Result of one call (a member of ``CALLS``) from now on."""
        self.gpu(gpu).result[CALLS.index(call)] = result

    def requests(self, call: str, *, gpu: int = 0) -> int:
        """How often a call was made so far."""
        return int(self.gpu(gpu).asked[CALLS.index(call)])

    def set_samples(self, samples: list[tuple[int, int]], *, gpu: int = 0, ring: int = UTILIZATION_RING) -> None:
        """Fill a ring: time in µs and percent (or mW, in the ring of power), at most 128."""
        one = self.gpu(gpu)
        for place, (time_us, value) in enumerate(samples):
            one.samples[ring][place] = StubSample(time_us, value)
        one.samples_used[ring] = len(samples)

    def set_processes(
        self, processes: list[tuple[int, int, int, int]], *, gpu: int = 0, instance: int | None = None
    ) -> None:
        """Processes of a GPU or an instance: pid, memory in bytes, SM utilisation in percent, time of its sample in µs.

        One without memory is not listed as running; one without a time has no sample of utilisation.
        """
        one = self.gpu(gpu) if instance is None else self.gpu(gpu).instances[instance]
        for place, (pid, memory, sm, time_us) in enumerate(processes):
            one.processes[place] = StubProcess(pid, sm, memory, time_us)
        one.processes_used = len(processes)

    def set_instances(self, instances: list[tuple[int, int, int, int]], *, gpu: int = 0) -> None:
        """Divide a GPU: GPU instance, compute instance, slices of both, each with its share of memory in eighths."""
        one = self.gpu(gpu)
        one.mig = 1
        for place, own in enumerate(one.instances):
            if place >= len(instances):
                own.used = 0
                continue
            gpu_id, compute_id, gpu_slices, compute_slices = instances[place]
            ctypes.memset(ctypes.addressof(own), 0, ctypes.sizeof(own))
            own.used = 1
            own.gpu_id, own.compute_id = gpu_id, compute_id
            own.gpu_slices, own.compute_slices = gpu_slices, compute_slices
            own.uuid = f"MIG-{gpu:08x}-{gpu_id:04x}-{compute_id:04x}-0000-000000000000".encode()
            own.name = one.name + f" MIG {gpu_slices}g".encode()
            own.memory_mib = (one.memory_total >> 20) * min(gpu_slices + gpu_slices // 3, 8) // 8 - 256

    def undivide(self, *, gpu: int = 0) -> None:
        """Turn MIG off."""
        self.set_instances([], gpu=gpu)
        self.gpu(gpu).mig = 0

    def set_switched(self, links: int, speed_mb_per_s: int = 25_000) -> None:
        """Connect all GPUs by that many NVLinks each to a switch."""
        for index in range(self.state.count):
            for link in range(links):
                self.gpu(index).links[link] = StubLink(1, 2, 0xE0)
                self.set_field(164, speed_mb_per_s, gpu=index, scope=link, kind=NARROW)
                self.set_field(165, 1, gpu=index, scope=link, kind=NARROW)
            self.set_field(91, links, gpu=index, kind=NARROW)

    def set_link_errors(self, link: int, *counts: int, gpu: int = 0) -> None:
        """What the call before Hopper tells of a link: replays, recoveries, CRC of flow control and data, ECC."""
        one = self.gpu(gpu).links[link]
        one.counters = len(counts)
        one.errors[: len(counts)] = counts

    def connect(self, gpu: int, peer: int, links: int, *, first: int = 0) -> None:
        """Connect one GPU directly to another by NVLinks, seen from the first."""
        for link in range(first, first + links):
            self.gpu(gpu).links[link] = StubLink(1, 0, self.gpu(peer).bus)
            self.set_field(164, 25_000, gpu=gpu, scope=link, kind=NARROW)

    def happen(self, kind: int, data: int, *, gpu: int = 0, unasked: bool = False) -> None:
        """Let an event happen; it is told if somebody registered it, or ``unasked``."""
        self.state.event[self.state.events % 64] = StubEvent(gpu, int(unasked), kind, data)
        self.state.events += 1

    def _reset(self, index: int) -> None:
        one = self.gpu(index)
        ctypes.memset(ctypes.addressof(one), 0, ctypes.sizeof(one))
        one.index = index
        one.uuid = f"GPU-{index:08x}-0000-0000-0000-000000000000".encode()
        one.name = b"NVIDIA H100 80GB HBM3"
        one.serial = f"16{index:08d}".encode()
        one.event_kinds = 0xFF9F
        one.bus = 0x10 + index
        one.memory_total, one.memory_reserved, one.memory_used = 80 << 30, 1 << 30, 20 << 30
        one.bar1_used = 1 << 20
        one.utilization, one.memory_utilization = 50, 25
        one.power_mw, one.limit_mw = 300_000, 700_000
        one.temperature, one.margin = 45, 40
        one.clock_mhz[1], one.clock_mhz[2], one.clock_mhz[3] = 1980, 2619, 1755
        one.architecture, one.capability[:] = 9, (9, 0)
        one.pcie[:] = (5, 5, 16, 16)
        one.fabric[:] = (3, 0)
        one.banks[:] = (640, 0, 0, 0, 0)
        one.common_ancestor = 40
        one.gpm, one.gpm_highest = 1, 476
        for metric in range(1, 14):
            one.gpm_value[metric] = 5.0 * metric
        one.gpm_value[248], one.gpm_value[249] = 1e12, 5e11
        fields = {3: 0, 4: 0, 74: 0, 75: 0, 82: 50, 83: 1_000_000, 94: 0, 144: 0, 185: 310_000, 186: 300_000,
                  197: 0, 198: 0, 230: 0}  # fmt: skip
        for field, value in fields.items():
            self.set_field(field, value, gpu=index)
        for field in (138, 139):
            self.set_field(field, 0, gpu=index, scope=ALL_LINKS)
