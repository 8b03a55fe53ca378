"""Adds up wasted GPU time by category and by workload or node, and publishes it periodically."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Evidence, Tick, Waste
from flyball_models.profile import waste
from flyball_models.profile.signals import Floats
from flyball_streams.engine.node.profile.places import Places

PUBLISH_NS = 600 * NS_PER_S
HOUR_S = 3_600.0


class _Way(NamedTuple):
    action: str
    words: str


_WAYS = {
    "idle": _Way("scale", "scale {subject} in or end it: {devices} of its GPUs ran no kernel for {idle}"),
    "notebook": _Way("preempt", "suspend {subject}: its notebook left {devices} open GPUs without a kernel for {idle}"),
    "input_starved": _Way(
        "resize", "give {subject} more CPUs, memory or faster storage, not GPUs: {devices} of them wait for their input"
    ),
    "low_duty": _Way(
        "scale", "run {subject} on fewer GPUs or parts of them: {devices} have a kernel in {duty} of ticks"
    ),
    "oversized": _Way("resize", "give {subject} smaller parts of a GPU: {devices} need less than half of theirs"),
    "stranded": _Way(
        "migrate", "move what runs on {subject}: its {devices} free GPUs are too few for nearly all replicas"
    ),
}


class WasteMeter:
    """``lost`` by category and subject: GPU seconds, USD (NaN: unknown) and the current number of devices."""

    def __init__(self, cell: str, partition: int) -> None:
        self.cell = cell
        self.partition = partition
        self.lost: dict[tuple[str, str], tuple[float, float, int]] = {}
        self.shown: dict[tuple[str, str], tuple[float, float]] = {}
        self.noted_ns = 0
        self.from_ns = 0

    def note(self, tick: Tick, places: Places, seen: waste.HeldDevices, needed: int, longest_ns: int) -> None:
        """Add the waste since the last call, at the current rate; a gap over ``longest_ns`` counts as unknown."""
        elapsed_ns, self.noted_ns = tick.end_ns - self.noted_ns, tick.end_ns
        if not 0 < elapsed_ns <= longest_ns:
            self.from_ns = tick.end_ns if not self.lost else self.from_ns
            return
        elapsed_s = elapsed_ns / NS_PER_S
        category, share = waste.wasted(seen)
        owner = places.tenancy.workload_of_slot
        at = np.flatnonzero((category >= 0) & (owner >= 0))
        names, n = places.tenancy.workloads, len(places.tenancy.workloads)
        bins = category[at] * n + owner[at]
        size = len(waste.CATEGORIES) * n
        gpu_s = np.bincount(bins, share[at] * elapsed_s * places.share[at], size)
        usd = np.bincount(bins, share[at] * elapsed_s * places.usd_per_s[at], size)
        count = np.bincount(bins, minlength=size)
        idle_s = _means(bins, seen.idle_s[at], count)
        duty = _means(bins, seen.duty[at], count)
        for b in np.flatnonzero(count).tolist():
            key = waste.CATEGORIES[b // n], names[b % n]
            self._add(key, float(gpu_s[b]), float(usd[b]), int(count[b]))
            self.shown[key] = float(idle_s[b]), float(duty[b])
        free = np.array([node.free for node in places.nodes], np.int64)
        held = np.array([node.held for node in places.nodes], np.int64)
        for i in np.flatnonzero(waste.stranded(free, held, needed)).tolist():
            node = places.nodes[i]
            gone_s = node.free * elapsed_s
            self._add(("stranded", node.name), gone_s, gone_s * node.usd_per_gpu_s, node.free)

    def records(self, tick: Tick) -> Iterator[Waste]:
        """Records of the waste since the last ones, once in ``PUBLISH_NS``."""
        if tick.end_ns - self.from_ns < PUBLISH_NS:
            return
        from_ns, self.from_ns = self.from_ns, tick.end_ns
        lost, self.lost = self.lost, {}
        shown, self.shown = self.shown, {}
        for (category, subject), (gpu_s, usd, devices) in sorted(lost.items()):
            idle_s, duty = shown.get((category, subject), (np.nan, np.nan))
            way = _WAYS[category]
            words = {"subject": subject, "devices": devices, "idle": f"{idle_s / 60.0:.0f} min", "duty": f"{duty:.0%}"}
            yield Waste(
                id=record_id("Waste", self.cell, subject, category, self.partition, tick.index),
                subject=subject,
                cell=self.cell,
                time_ns=tick.end_ns,
                from_ns=from_ns,
                category=category,  # type: ignore[arg-type]
                gpu_hours=gpu_s / HOUR_S,
                devices=devices,
                action=way.action,  # type: ignore[arg-type]
                proposal=way.words.format(**words),
                usd=None if np.isnan(usd) else usd,
                node=subject if category == "stranded" else "",
                evidence=tuple(
                    Evidence(name=name, value=value, unit=unit)
                    for name, value, unit in (("idle", idle_s, "s"), ("duty_cycle", duty, "1"))
                    if np.isfinite(value)
                ),
            )

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "lost": [[*key, *value] for key, value in self.lost.items()],
            "shown": [[*key, *value] for key, value in self.shown.items()],
            "noted_ns": self.noted_ns,
            "from_ns": self.from_ns,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.lost = {(c, s): (gpu_s, usd, devices) for c, s, gpu_s, usd, devices in state["lost"]}
        self.shown = {(c, s): (idle_s, duty) for c, s, idle_s, duty in state["shown"]}
        self.noted_ns, self.from_ns = state["noted_ns"], state["from_ns"]

    def _add(self, key: tuple[str, str], gpu_s: float, usd: float, devices: int) -> None:
        before = self.lost.get(key, (0.0, 0.0, 0))
        self.lost[key] = before[0] + gpu_s, before[1] + usd, devices


def _means(bins: NDArray[np.int64], x: Floats, count: NDArray[np.int64]) -> NDArray[np.float64]:
    sums = np.bincount(bins, x.astype(np.float64), len(count))
    return np.asarray(sums / np.maximum(count, 1), np.float64)
