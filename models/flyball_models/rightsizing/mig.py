"""The smallest MIG profile that satisfies a replica's needs.

NVIDIA divides a GPU into 7 compute and 8 memory slices; the names of the profiles state the memory in GB, rounded
(Multi-Instance GPU User Guide, "Supported MIG Profiles").
"""

from typing import NamedTuple

COMPUTE_SLICES = 7
MEMORY_SLICES = 8
SLICES = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))
"""Compute and memory slices of the profiles, the smallest first."""
USABLE = 0.95
"""Share of an instance's memory that a process gets: 9.5 GiB of the 10 in 1g.10gb."""


class GpuProfiles(NamedTuple):
    """GPUs with the same profiles: a word in their model's name, their memory in GiB, and the names' GB."""

    word: str
    memory_gib: float
    names_gb: tuple[int, int, int, int, int, int]


GPU_PROFILES = (
    GpuProfiles("A100", 40, (5, 10, 10, 20, 20, 40)),
    GpuProfiles("A100", 80, (10, 20, 20, 40, 40, 80)),
    GpuProfiles("A800", 80, (10, 20, 20, 40, 40, 80)),
    GpuProfiles("H100", 80, (10, 20, 20, 40, 40, 80)),
    GpuProfiles("H100", 94, (12, 24, 24, 47, 47, 94)),
    GpuProfiles("H800", 80, (10, 20, 20, 40, 40, 80)),
    GpuProfiles("GH200", 96, (12, 24, 24, 48, 48, 96)),
    GpuProfiles("H20", 96, (12, 24, 24, 48, 48, 96)),
    GpuProfiles("H200", 141, (18, 35, 35, 71, 71, 141)),
    GpuProfiles("B200", 180, (23, 45, 45, 90, 90, 180)),
    GpuProfiles("GB200", 186, (23, 47, 47, 93, 93, 186)),
    GpuProfiles("B300", 269, (34, 67, 67, 135, 135, 269)),
)
_NEAR = 0.15
"""Tolerance between the reported memory and that of the GPU line."""


class Profile(NamedTuple):
    """A MIG profile: its name, share of the GPU's compute, memory for a process, and share of the whole GPU.

    The last is the larger of its shares of compute and memory slices.
    """

    name: str
    share: float
    memory_bytes: float
    size: float


def profiles(model: str, memory_bytes: float) -> tuple[Profile, ...]:
    """Profiles of a GPU by its model's name (such as ``NVIDIA H100 80GB HBM3``) and memory, the smallest first.

    Empty if the GPU does not support MIG or is unknown.
    """
    parts = set(model.upper().replace("-", " ").split())
    gib = memory_bytes / 2**30
    near = [f for f in GPU_PROFILES if f.word in parts and abs(f.memory_gib - gib) <= _NEAR * f.memory_gib]
    if not near:
        return ()
    gpu = min(near, key=lambda f: abs(f.memory_gib - gib))
    return tuple(
        Profile(
            f"{compute}g.{gb}gb",
            compute / COMPUTE_SLICES,
            memory_bytes * memory / MEMORY_SLICES * (USABLE if memory < MEMORY_SLICES else 1.0),
            max(compute / COMPUTE_SLICES, memory / MEMORY_SLICES),
        )
        for (compute, memory), gb in zip(SLICES, gpu.names_gb, strict=True)
    )


def smallest(model: str, memory_bytes: float, share: float, used_bytes: float) -> Profile | None:
    """Smallest profile with `share` of the GPU's compute and `used_bytes` of memory; ``None``: none known.

    A GPU whose use exceeds its size gets the largest. Compute is assumed to scale with slices; work that does not fill
    the whole GPU runs faster than that.
    """
    known = profiles(model, memory_bytes)
    fit = [p for p in known if p.share >= share and p.memory_bytes >= used_bytes]
    return fit[0] if fit else known[-1] if known else None
