"""State of a device, derived from its values: ``hw.status`` of the ``GPU_DETAIL`` layout."""

from flyball_contracts.metrics import GPU, GPU_DETAIL

_OK, _DEGRADED, _FAILED, _PREDICTED = (
    GPU_DETAIL.column(f"hw.status{{state={state}}}") for state in ("ok", "degraded", "failed", "predicted_failure")
)
_ACTION = GPU.column("nvidia.gpu.recovery_action")
_WARNINGS = (
    GPU_DETAIL.column("nvidia.gpu.memory.row_remap.failed"),
    GPU_DETAIL.column("nvidia.gpu.ecc.sram.threshold"),
)
_PENDING = GPU.column("nvidia.gpu.memory.row_remap.pending")
_SLOWED = tuple(
    GPU_DETAIL.column(f"nvidia.gpu.clock.event.active{{reason={reason}}}")
    for reason in ("hw_thermal", "hw_power_brake")
)


def put_status(row: list[float], now: list[float] | None, *, xids: int) -> None:
    """Put the four states into a detail row; ``now`` is the device's other row, ``None`` while it is lost.

    It has failed when it does not answer or requests a reset, is about to fail when its memory has no spare rows or
    waits for a reset to use one, and is degraded when hardware slows it, or it had XIDs since the row before. It is
    ok when it is none of these.
    """
    failed = now is None or now[_ACTION] > 0
    predicted = now is not None and (now[_PENDING] > 0 or any(row[column] > 0 for column in _WARNINGS))
    degraded = now is not None and (xids > 0 or any(row[column] > 0 for column in _SLOWED))
    row[_FAILED], row[_PREDICTED], row[_DEGRADED] = float(failed), float(predicted), float(degraded)
    row[_OK] = float(not (failed or predicted or degraded))
