"""The simulated accelerators: public data-sheet values, in SI units."""

from typing import NamedTuple

GIB = 1024**3


class SkuData(NamedTuple):
    """One accelerator; bandwidths are one way. Without ``gpm`` it has no activity counters."""

    model: str
    memory_bytes: int
    power_limit_w: float
    idle_power_w: float
    sm_clock_hz: float
    idle_clock_hz: float
    memory_clock_hz: float
    slowdown_cel: float
    nvlink_bytes_per_s: float
    pcie_bytes_per_s: float
    gpm: bool


SKUS: dict[str, SkuData] = {
    "h100": SkuData(
        "NVIDIA H100 80GB HBM3", 80 * GIB, 700.0, 72.0, 1.98e9, 3.45e8, 2.619e9, 87.0, 450e9, 63e9, gpm=True
    ),
    "a100": SkuData(
        "NVIDIA A100-SXM4-80GB", 80 * GIB, 400.0, 58.0, 1.41e9, 2.1e8, 1.593e9, 88.0, 300e9, 31.5e9, gpm=False
    ),
}
