"""Parts of Google Cloud's GPU machines: the catalogue has prices of parts only.

A part is named as in the catalogue, without what follows ``attached to`` or ``running in`` and without ``Spot
Preemptible``; ``A | B`` are two names of one part, of which a region has one. Amounts (virtual CPUs, GiB of memory,
GPUs, GiB of local disk) are those of https://cloud.google.com/compute/docs/accelerator-optimized-machines.
"""

from collections.abc import Mapping

Parts = Mapping[str, float]
_DISK = "SSD backed Local Storage"


def _machine(series: str, gpu: str, gpus: int, cpus: int, memory_gib: int, disk_gib: int = 0) -> Parts:
    parts = {f"{series} Instance Core": cpus, f"{series} Instance Ram": memory_gib, gpu: gpus}
    return parts | ({_DISK: disk_gib} if disk_gib else {})


_A100, _A100_80 = "Nvidia Tesla A100 GPU", "Nvidia Tesla A100 80GB GPU"
_H100 = "Nvidia H100 80GB GPU"
_MEGA = "Nvidia H100 80GB Mega GPU | Nvidia H100 Mega 80GB GPU | Nvidia H100 80GB Plus GPU"
_L4 = "Nvidia L4 GPU"

MACHINES: Mapping[str, Parts] = {
    **{f"a2-highgpu-{n}g": _machine("A2", _A100, n, 12 * n, 85 * n) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": _machine("A2", _A100, 16, 96, 1360),
    **{f"a2-ultragpu-{n}g": _machine("A2", _A100_80, n, 12 * n, 170 * n, 375 * n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": _machine("A3", _H100, n, 26 * n, 234 * n, 750 * n) for n in (1, 2, 4, 8)},
    "a3-megagpu-8g": _machine("A3Plus", _MEGA, 8, 208, 1872, 6000),
    "a4-highgpu-8g": {"A4 Nvidia B200 (1 gpu slice)": 8},
    **{f"g2-standard-{n}": _machine("G2", _L4, 1, n, 4 * n) for n in (4, 8, 12, 16, 32)},
    **{f"g2-standard-{24 * n}": _machine("G2", _L4, 2 * n, 24 * n, 96 * n) for n in (1, 2, 4)},
}
