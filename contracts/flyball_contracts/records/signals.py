"""Carbon, price and spot curves of a zone."""

from typing import Literal

from flyball_contracts.records.base import Record, StepS, TimeNs

SignalKind = Literal["carbon_intensity", "electricity_price", "spot_price", "spot_risk"]


class Signal(Record, frozen=True, kw_only=True):
    """A curve of one quantity: slot ``i`` covers ``step_s`` seconds from ``start_ns + i * step_s``.

    Units: ``carbon_intensity`` gCO2e/kWh, ``electricity_price`` USD/kWh, ``spot_price`` USD/h,
    ``spot_risk`` probability of loss per hour. ``p10`` and ``p90`` are empty or as long as ``p50``. ``published_ns`` is
    when the values became known; only values published by a given time may be used at that time.
    """

    zone: str
    kind: SignalKind
    published_ns: TimeNs
    start_ns: TimeNs
    step_s: StepS
    p50: tuple[float, ...]
    p10: tuple[float, ...] = ()
    p90: tuple[float, ...] = ()
    forecast: bool = True
    average: bool = True
    lifecycle: bool = True
    estimated: bool = False
    source: str = ""

    @property
    def end_ns(self) -> int:
        """First nanosecond after the last slot."""
        return self.start_ns + round(len(self.p50) * self.step_s * 1e9)

    def at(self, time_ns: int) -> float | None:
        """Median of the slot that holds a time, ``None`` outside the curve."""
        slot = int((time_ns - self.start_ns) // round(self.step_s * 1e9))
        return self.p50[slot] if 0 <= slot < len(self.p50) else None
