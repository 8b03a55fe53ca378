"""Compares every value as read by our layer and by NVIDIA's own binding.

Our layer declares NVML's structs and numbers itself. On a user's GPU this verifies that it reads them correctly: the
binding is queried between two of our reads, by another NVML call if there is one.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_void_p
from typing import Literal, NamedTuple

from flyball_collectors.base import NAN
from flyball_collectors.nvml.binding import Binding
from flyball_collectors.nvml.calls.fields import Field
from flyball_collectors.nvml.collector import NvmlCollector
from flyball_collectors.nvml.devices.gpu import GpuReader, GpuReading
from flyball_collectors.nvml.readings import current, detail
from flyball_collectors.nvml.readings.gpm import IDS, scaled
from flyball_collectors.nvml.readings.link_errors import FIELDS as LINK_FIELDS, KINDS, Counts, by_link, sum_of
from flyball_contracts.metrics import GPU, GPU_DETAIL, Layout

Verdict = Literal["same", "close", "differs", "missing", "ours alone"]
_LAYOUTS = (GPU, GPU_DETAIL)
_COMPUTING = "nvidia.gpu.process.count"
_ALL_LINK_ERRORS = "nvidia.gpu.nvlink.errors"
_GPM_APART_S = 0.15
# What may lie between two reads a few milliseconds apart, by key or unit: a part of the value, and a constant.
_TOLERANCE: Mapping[str, tuple[float, float]] = {
    "W": (0.25, 20.0), "Cel": (0.0, 3.0), "Hz": (0.25, 5e7), "By": (0.05, 64 * 2**20), "J": (0.0, 50.0),
    "1": (0.0, 0.02), "s": (0.0, 0.05),
    "hw.gpu.memory.utilization": (0.0, 0.01),
}  # fmt: skip
_ROUNDS = 3
"""Reads of a GPU while a value differs: a changing load can move a share further than allowed between two reads."""
_EXACT = ("limit", "pcie.link", "row_remap", "rows.remapped", "recovery_action", "fabric", "ecc", "replays", "errors")


class Compared(NamedTuple):
    """One value of one GPU; NaN if a side has none. ``close`` is within the possible change between two reads."""

    gpu: int
    key: str
    unit: str
    ours: float
    theirs: float
    verdict: Verdict

    @property
    def ok(self) -> bool:
        """Whether our layer has the binding's value."""
        return self.verdict in ("same", "close")


class Mismatch(NamedTuple):
    """A GPU whose name or serial number differs between the two sides."""

    gpu: int
    what: str
    ours: str
    theirs: str


def compare(
    collector: NvmlCollector, binding: Binding, wait: Callable[[float], object] = time.sleep
) -> tuple[list[Compared], list[Mismatch]]:
    """Read all whole GPUs by both sides; does not raise if one of them fails."""
    rows: list[Compared] = []
    wrong: list[Mismatch] = []
    for reader in collector.readers:
        best = dict[str, Compared]()
        for _ in range(_ROUNDS):
            for one in _round(reader, binding, wait):
                if one.key not in best or (one.ok and not best[one.key].ok):
                    best[one.key] = one
            if not any(one.verdict == "differs" and one.unit == "1" for one in best.values()):
                break
        rows += best.values()
        who = binding.identity(reader.gate.handle)
        device = reader.device
        for what, ours in (("uuid", device.id), ("name", device.model), ("serial", device.serial or "")):
            if who[what] != ours:
                wrong.append(Mismatch(reader.index, what, ours, who[what]))
    return rows, wrong


def _round(reader: GpuReader, binding: Binding, wait: Callable[[float], object]) -> list[Compared]:
    """All values of a GPU, the binding's between two reads of ours."""
    reader.read(detail=True)
    sample = binding.gpm_sample(reader.gate.handle)
    wait(_GPM_APART_S)
    first = reader.read(detail=True)
    handle = reader.gate.handle
    theirs = [
        _by_fields(binding, handle, current.FIELDS, GPU) | binding.current(handle),
        _by_fields(binding, handle, detail.FIELDS, GPU_DETAIL) | binding.detail(handle),
    ]
    later = binding.gpm_sample(handle) if sample is not None else None
    if later is not None:
        activity = binding.activity(sample, later, IDS)
        for found, layout, columns in zip(theirs, _LAYOUTS, (current.ACTIVITY, detail.ACTIVITY), strict=True):
            found |= {layout.metrics[columns[id]].key: scaled(id, v) for id, v in activity.items() if id in columns}
    links = _link_errors(binding, handle)
    sums = {GPU_DETAIL.metrics[c].key: sum_of(links, kind) for kind, c in detail.SUMMED.items()}
    theirs[1] |= {key: value for key, value in sums.items() if value == value}
    if links:
        theirs[0].setdefault(_ALL_LINK_ERRORS, sum_of(links))
    held = binding.processes(handle)
    theirs[0][_COMPUTING] = float(binding.computing(handle))
    second = reader.read(detail=True)
    return [
        *_values(reader.index, first, second, theirs),
        *_links(reader.index, first.link_errors or {}, second.link_errors or {}, links),
        *_processes(reader.index, first, second, held),
    ]


def _values(gpu: int, first: GpuReading, second: GpuReading, theirs: list[dict[str, float]]) -> Iterator[Compared]:
    """Values of both layouts, from the second read if the first had none: GPM rejects reads in short succession."""
    sides = ((GPU, first.rows, second.rows), (GPU_DETAIL, first.details, second.details))
    for (layout, one, other), values in zip(sides, theirs, strict=True):
        for key, their in values.items():
            before, after = (rows[0][layout.column(key)] if rows else NAN for rows in (one, other))
            yield _compared(gpu, key, _unit(layout, key), before, after, their)
        for key, column in layout.columns.items():
            ours = one[0][column] if one else NAN
            if key not in values and ours == ours and not key.startswith("flyball."):
                yield Compared(gpu, key, _unit(layout, key), ours, NAN, "ours alone")


def _by_fields(binding: Binding, handle: c_void_p, fields: Sequence[Field], layout: Layout) -> dict[str, float]:
    """Values by key that our layer reads as fields, added up in the same way."""
    answers = binding.fields(handle, [(field.id, field.scope) for field in fields])
    found: dict[str, float] = {}
    for field in fields:
        value, wide = answers.get((field.id, field.scope), (None, False))
        if value is not None and (wide or not field.wide):  # bytes in 32 bits wrap, and are not used as they are
            key = layout.metrics[field.column].key
            found[key] = found.get(key, 0.0) + value * field.scale
    return found


def _link_errors(binding: Binding, handle: c_void_p) -> dict[int, dict[str, float]]:
    """Errors of each NVLink: by field if the GPU has these, else by the older call."""
    answers = binding.fields(handle, [(field.id, field.scope) for field in LINK_FIELDS])
    row = [NAN] * (1 + max(field.column for field in LINK_FIELDS))
    for field in LINK_FIELDS:
        value, _ = answers.get((field.id, field.scope), (NAN, False))
        if value == value:
            row[field.column] = value if row[field.column] != row[field.column] else row[field.column] + value
    return by_link(row) or binding.link_errors(handle)


def _links(gpu: int, first: Counts, second: Counts, theirs: Counts) -> Iterator[Compared]:
    """Each link by itself, by kind of error."""
    for link in sorted({*first, *theirs}):
        for kind in KINDS:
            before, after, count = (counts.get(link, {}).get(kind, NAN) for counts in (first, second, theirs))
            if before == before or count == count:
                yield _compared(
                    gpu, f"nvidia.gpu.nvlink.errors{{link={link},type={kind}}}", "{error}", before, after, count
                )


def _processes(gpu: int, first: GpuReading, second: GpuReading, held: Mapping[int, float]) -> Iterator[Compared]:
    """Memory of each process that existed throughout, and those that only one side has."""
    before, after = ({p.pid: p.memory_bytes for p in found.processes} for found in (first, second))
    for pid in sorted(before.keys() & after.keys() | (held.keys() - before.keys() - after.keys())):
        if not first.devices[0].mig_enabled:
            ours = before.get(pid, NAN)
            memory = held.get(pid, NAN)
            key = f"memory of process {pid}"
            if pid not in before:
                yield Compared(gpu, key, "By", NAN, memory, "missing")
            elif pid in held:
                yield _compared(gpu, key, "By", ours, after.get(pid, NAN), memory)


def _compared(gpu: int, key: str, unit: str, before: float, after: float, theirs: float) -> Compared:
    ours = before if before == before else after
    if ours != ours:
        return Compared(gpu, key, unit, NAN, theirs, "missing" if theirs == theirs else "same")
    known = [value for value in (before, after) if value == value]
    if any(abs(value - theirs) <= 1e-9 * abs(value) for value in known):
        return Compared(gpu, key, unit, ours, theirs, "same")
    part, constant = (
        (0.0, 0.0) if any(word in key for word in _EXACT) else _TOLERANCE.get(key, _TOLERANCE.get(unit, (0.0, 0.0)))
    )
    tolerance = constant + part * max(abs(value) for value in known)
    within = min(known) - tolerance <= theirs <= max(known) + tolerance
    return Compared(gpu, key, unit, ours, theirs, "close" if within else "differs")


def _unit(layout: Layout, key: str) -> str:
    return layout.metrics[layout.column(key)].unit
