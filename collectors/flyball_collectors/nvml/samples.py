"""Utilisation without gaps: the driver's own ring of samples, drained at each read."""

from math import ceil
from typing import Any

from flyball_collectors.nvml.gate import Gate
from flyball_collectors.nvml.values import number_in

_GPU_UTILIZATION = 1  # nvmlSamplingType_t
_PATIENCE = 10  # reads without a new sample until the clock of the samples is taken to have been set back


class UtilizationRing:
    """Drains ``nvmlDeviceGetSamples``, so that a burst between two reads is seen.

    A sample is the share of its interval, which began at the sample before; so busy time is the integral of the
    samples, and their mean is weighted by time. The first read only starts the clock: what the ring holds then
    is older than the agent.
    """

    def __init__(self) -> None:
        self._last_us = 0
        self._busy_s = 0.0
        self._empty = 0

    def read(self, gate: Gate) -> dict[str, float]:
        """Mean, least, greatest and 95th percentile (nearest rank) since the previous read, and busy time so far.

        Empty where the device has no ring; busy time alone where there is no new sample.
        """
        answer: Any = gate.ask("nvmlDeviceGetSamples", _GPU_UTILIZATION, self._last_us)
        samples: list[tuple[int, float]] = []
        if answer is not None:
            kind, raw = answer
            for sample in raw:
                percent = number_in(int(kind), sample.sampleValue)
                if percent is not None and 0 <= percent <= 100:
                    samples.append((int(sample.timeStamp), percent / 100))
        samples.sort()
        shares, spans = self._advance(samples)
        if not self._last_us:
            return {}
        found = {"nvidia.gpu.busy.time": self._busy_s}
        if shares:
            ordered = sorted(shares)
            busy_s = sum(share * span_s for share, span_s in zip(shares, spans, strict=True))
            found["hw.gpu.utilization{task=general}"] = busy_s / sum(spans)
            found["nvidia.gpu.utilization.min"] = ordered[0]
            found["nvidia.gpu.utilization.max"] = ordered[-1]
            found["nvidia.gpu.utilization.p95"] = ordered[ceil(0.95 * len(ordered)) - 1]
        return found

    def _advance(self, samples: list[tuple[int, float]]) -> tuple[list[float], list[float]]:
        """Take the samples that are new: their values and the seconds that each one covers."""
        shares: list[float] = []
        spans: list[float] = []
        if samples and not self._last_us:
            self._last_us = samples[-1][0]
            return shares, spans
        for time_us, share in samples:
            if time_us > self._last_us:
                span_s = (time_us - self._last_us) / 1e6
                shares.append(share)
                spans.append(span_s)
                self._busy_s += share * span_s
                self._last_us = time_us
        self._empty = 0 if shares else self._empty + 1
        if self._empty >= _PATIENCE:
            self._last_us = self._empty = 0
        return shares, spans
