"""Frames from readings: rows are validated, and completed by the collector's own columns."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.base import NAN
from flyball_collectors.nvml.calls.values import Validator
from flyball_collectors.nvml.devices.gpu import GpuReading
from flyball_contracts.metrics import GPU, GPU_DETAIL
from flyball_contracts.records import Device

_STALLED = GPU_DETAIL.column("flyball.agent.read.stalled")
_REJECTED = GPU_DETAIL.column("flyball.agent.values{state=rejected}")
_XIDS = GPU_DETAIL.column("nvidia.gpu.xid.events")
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

    It has failed when it does not answer or requests a recovery action, is about to fail when its memory has no spare
    rows or waits for a reset to use one, and is degraded when hardware slows it, or it had XIDs since the row before.
    It is ok when it is none of these.
    """
    failed = now is None or now[_ACTION] > 0
    predicted = now is not None and (now[_PENDING] > 0 or any(row[column] > 0 for column in _WARNINGS))
    degraded = now is not None and (xids > 0 or any(row[column] > 0 for column in _SLOWED))
    row[_FAILED], row[_PREDICTED], row[_DEGRADED] = float(failed), float(predicted), float(degraded)
    row[_OK] = float(not (failed or predicted or degraded))


class Rows:
    """Keeps the previous rows of each device; ``xids`` counts those of each GPU by UUID."""

    def __init__(self) -> None:
        self.xids: Counter[str] = Counter()
        self._xids_reported: Counter[str] = Counter()
        self._current, self._detail = Validator(GPU), Validator(GPU_DETAIL)

    @property
    def rejected(self) -> Counter[str]:
        """Number of impossible values of the present devices, by metric."""
        validators = (self._current, self._detail)
        return sum((counts for validator in validators for counts in validator.rejected.values()), Counter[str]())

    def current(self, devices: Sequence[Device], found: Sequence[GpuReading], period_s: float) -> NDArray[np.float32]:
        """Values ``float32[devices, metrics]`` of the ``GPU`` layout."""
        rows = [row for one in found for row in one.rows]
        return self._current.frame([device.id for device in devices], rows, period_s)

    def detail(
        self,
        devices: Sequence[Device],
        found: Sequence[GpuReading],
        stalled: Sequence[bool],
        period_s: float,
        *,
        watched: bool,
    ) -> NDArray[np.float32]:
        """Values ``float32[devices, metrics]`` of the ``GPU_DETAIL`` layout, of the same read as :meth:`current`.

        ``stalled`` is by GPU; without the driver's events (``watched``) the number of XIDs is unknown.
        """
        for one, still in zip(found, stalled, strict=True):
            self._finish(one, stalled=still, watched=watched)
        rows = [row for one in found for row in one.details]
        return self._detail.frame([device.id for device in devices], rows, period_s)

    def _finish(self, found: GpuReading, *, stalled: bool, watched: bool) -> None:
        row, uuid = found.details[0], found.devices[0].id
        row[_STALLED] = float(stalled)
        for device, details in zip(found.devices, found.details, strict=True):
            counts = (validator.rejected.get(device.id) for validator in (self._current, self._detail))
            details[_REJECTED] = sum(sum(count.values()) for count in counts if count)
        xids = self.xids[uuid]
        row[_XIDS] = xids if watched else NAN
        if found.lost or not stalled:
            put_status(row, None if found.lost else found.rows[0], xids=xids - self._xids_reported[uuid])
        self._xids_reported[uuid] = xids
