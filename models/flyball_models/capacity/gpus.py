"""Peak figures of common data-centre GPUs, from their makers' data sheets.

Dense (not sparse) tensor FLOP/s with 16-bit and, where there is one, 8-bit floating point, memory bandwidth in bytes
per second, memory in bytes. Sources: NVIDIA's data sheets of T4, V100, A10, A30, A100, L4, L40S, H100, H200, GH200
and B200 (DGX B200 for the last), and AWS's page of G5 instances for the A10G.
"""

import re
from typing import NamedTuple

T, G = 1e12, 1e9


class Gpu(NamedTuple):
    """Peak figures of one GPU; ``flops_8`` equals ``flops_16`` if 8-bit floats are no faster."""

    name: str
    flops_16: float
    flops_8: float
    bandwidth_bytes_per_s: float
    memory_bytes: float


GPUS = (
    Gpu("t4", 65 * T, 65 * T, 320 * G, 16 * G),
    Gpu("v100", 125 * T, 125 * T, 900 * G, 32 * G),
    Gpu("a10g", 70 * T, 70 * T, 600 * G, 24 * G),
    Gpu("a10", 125 * T, 125 * T, 600 * G, 24 * G),
    Gpu("a30", 165 * T, 165 * T, 933 * G, 24 * G),
    Gpu("a100 40gb", 312 * T, 312 * T, 1_555 * G, 40 * G),
    Gpu("a100", 312 * T, 312 * T, 2_039 * G, 80 * G),
    Gpu("l40s", 362 * T, 733 * T, 864 * G, 48 * G),
    Gpu("l4", 121 * T, 242 * T, 300 * G, 24 * G),
    Gpu("h100 pcie", 756 * T, 1_513 * T, 2_000 * G, 80 * G),
    Gpu("h100 nvl", 835 * T, 1_671 * T, 3_938 * G, 94 * G),
    Gpu("h100", 989 * T, 1_979 * T, 3_350 * G, 80 * G),
    Gpu("gh200", 990 * T, 1_979 * T, 4_000 * G, 96 * G),
    Gpu("h200", 989 * T, 1_979 * T, 4_800 * G, 141 * G),
    Gpu("b200", 2_250 * T, 4_500 * T, 8_000 * G, 180 * G),
)


def find(model: str) -> Gpu | None:
    """Return the GPU of a driver's or an owner's name, ``None`` if the table has none.

    All words of the table's name must occur in it as words, so ``NVIDIA H100 80GB HBM3`` and ``h100`` are the same; of
    several matches, the one with the most words counts.
    """
    parts = set(re.split(r"[^a-z0-9]+", model.lower()))
    fits = [gpu for gpu in GPUS if set(gpu.name.split()) <= parts]
    return max(fits, key=lambda gpu: len(gpu.name.split()), default=None)
