"""The test's side of the stand-in for NVML: compile it, and set what its GPUs report."""

import ctypes
import mmap
import shutil
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml_stub.c")
LIBRARY = "libnvidia-ml.so.1"
STATE_VARIABLE = "FLYBALL_NVML_STUB"
CALLS = (
    "uuid", "name", "serial", "pci", "utilization", "encoder", "decoder", "memory", "bar1", "power", "limit",
    "temperature", "margin", "clock", "reasons", "pstate", "fan", "processes", "samples", "fields", "events",
)  # fmt: skip
ALL_LINKS = 0xFFFFFFFF
U32, U64 = ctypes.c_uint32, ctypes.c_uint64
NOT_SUPPORTED, GPU_IS_LOST, UNKNOWN = 3, 15, 999
WIDE, NARROW = 3, 1  # value types: unsigned long long, unsigned int


class StubField(ctypes.Structure):
    _fields_ = [("id", U32), ("scope", U32), ("type", U32), ("result", U32), ("value", U64)]


class StubSample(ctypes.Structure):
    _fields_ = [("time_us", U64), ("percent", U64)]


class StubGpu(ctypes.Structure):
    _fields_ = [
        ("uuid", ctypes.c_char * 80), ("name", ctypes.c_char * 96), ("serial", ctypes.c_char * 32),
        ("lost", U32), ("result", U32 * 32), ("asked", U32 * 32),
        ("domain", U32), ("bus", U32), ("device", U32),
        ("utilization", U32), ("memory_utilization", U32), ("encoder", U32), ("decoder", U32),
        ("memory_total", U64), ("memory_reserved", U64), ("memory_used", U64), ("bar1_used", U64),
        ("power_mw", U32), ("limit_mw", U32), ("temperature", U32), ("clock_mhz", U32 * 4), ("margin", ctypes.c_int32),
        ("reasons", U64), ("pstate", U32), ("fan", U32), ("processes", U32),
        ("fields_used", U32), ("samples_used", U32),
        ("fields", StubField * 32), ("samples", StubSample * 128),
    ]  # fmt: skip


class StubEvent(ctypes.Structure):
    _fields_ = [("gpu", U32), ("padding", U32), ("kind", U64), ("data", U64)]


class StubState(ctypes.Structure):
    _fields_ = [
        ("init", U32), ("count", U32), ("events", U32), ("padding", U32),
        ("event", StubEvent * 64), ("gpu", StubGpu * 72),
    ]  # fmt: skip


STRUCTS: dict[str, type[ctypes.Structure]] = {
    "state": StubState, "gpu": StubGpu, "field": StubField, "sample": StubSample, "event": StubEvent,
}  # fmt: skip


def compile_stub(folder: Path) -> Path | None:
    """Library in ``folder``, named and marked (SONAME) as the driver's; ``None`` without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / LIBRARY
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, f"-Wl,-soname,{LIBRARY}", "-o", library, SOURCE], check=True)
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

    def asked(self, call: str, *, gpu: int = 0) -> int:
        """How often a call was made so far."""
        return int(self.gpu(gpu).asked[CALLS.index(call)])

    def set_samples(self, samples: list[tuple[int, int]], *, gpu: int = 0) -> None:
        """Fill the ring of utilisation: time in µs and percent, at most 128."""
        one = self.gpu(gpu)
        for place, (time_us, percent) in enumerate(samples):
            one.samples[place] = StubSample(time_us, percent)
        one.samples_used = len(samples)

    def happen(self, kind: int, data: int, *, gpu: int = 0) -> None:
        """Let an event happen."""
        self.state.event[self.state.events % 64] = StubEvent(gpu, 0, kind, data)
        self.state.events += 1

    def _reset(self, index: int) -> None:
        one = self.gpu(index)
        ctypes.memset(ctypes.addressof(one), 0, ctypes.sizeof(one))
        one.uuid = f"GPU-{index:08x}-0000-0000-0000-000000000000".encode()
        one.name = b"NVIDIA H100 80GB HBM3"
        one.serial = f"16{index:08d}".encode()
        one.bus = 0x10 + index
        one.memory_total, one.memory_reserved, one.memory_used = 80 << 30, 1 << 30, 20 << 30
        one.bar1_used = 1 << 20
        one.utilization, one.memory_utilization = 50, 25
        one.power_mw, one.limit_mw = 300_000, 700_000
        one.temperature, one.margin = 45, 40
        one.clock_mhz[1], one.clock_mhz[2] = 1980, 2619
        fields = {3: 0, 4: 0, 74: 0, 75: 0, 82: 50, 83: 1_000_000, 94: 0, 144: 0, 185: 310_000, 186: 300_000,
                  197: 0, 198: 0, 230: 0}  # fmt: skip
        for field, value in fields.items():
            self.set_field(field, value, gpu=index)
        for field in (138, 139):
            self.set_field(field, 0, gpu=index, scope=ALL_LINKS)
