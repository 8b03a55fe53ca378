"""How each device is divided: the three parts of a row add up to the device, or are all missing.

The row of a GPU that is divided into MIG instances is the sum of theirs, weighted with their slices; so the rows of
devices without a parent add up to the node.
"""

from flyball_contracts.metrics.base import Layout, count, gauge

_PARTS = {
    "attributed": "of known workloads",
    "unattributed": "of work that belongs to no known workload",
    "idle": "while nothing ran",
}

GPU_SHARE = Layout(
    7,
    "gpu_share",
    "device",
    (
        *(count("nvidia.gpu.share.sm.time", "s", f"SM time {about}", part=part) for part, about in _PARTS.items()),
        *(count("nvidia.gpu.share.energy", "J", f"energy {about}", part=part) for part, about in _PARTS.items()),
        *(
            gauge("nvidia.gpu.share.memory", "By", f"memory {about}", part=part)
            for part, about in (*list(_PARTS.items())[:2], ("free", "that is free or reserved"))
        ),
    ),
)
