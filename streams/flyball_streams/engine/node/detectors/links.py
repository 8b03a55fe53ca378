"""Detects devices whose NVLink or PCIe link fails; the anomaly names the NVLink if the agent reported it."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Anomaly, Evidence, NodeEvent
from flyball_models.anomaly import link_errors
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.packing import pack_struct, unpack_struct

COLUMNS = np.array([GPU.column("nvidia.gpu.nvlink.errors"), GPU.column("nvidia.gpu.pcie.replays")])
DETECTORS = ("nvlink", "pcie")
REPEAT_NS = 600 * NS_PER_S
EVENT_NS = 3600 * NS_PER_S
"""Agents report a link that keeps failing at least once an hour."""


class Links(Detector[link_errors.State]):
    """Monitors the links of the devices of one cell.

    ``events`` has the latest event of each device and NVLink, ``reported`` the time of the last anomaly, in ns.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, link_errors.init)
        self.reported: dict[str, int] = {}
        self.events: dict[str, dict[int, NodeEvent]] = {}

    def retire(self, subjects: list[str]) -> None:
        """Drop devices that are gone."""
        for device in subjects:
            self.events.pop(device, None)
            self.reported = {key: time_ns for key, time_ns in self.reported.items() if key.partition(" ")[2] != device}

    def step(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies of devices whose links have too many errors, each at most once in ``REPEAT_NS``."""
        tick, table = seen.tick, seen.gpus
        for event, devices in seen.events:
            if event.kind == "nvlink_error" and event.link is not None:
                for device in devices:
                    self.events.setdefault(device, {})[event.link] = event
        errors = table.values.take(COLUMNS, axis=1).T
        if not (errors > 0).any():
            return  # nearly all ticks
        new = np.where(table.mask & np.isfinite(errors), errors, np.float32(0.0)).astype(np.float64)
        self.model, alarms = link_errors.step(self.model, new, tick.end_ns / NS_PER_S, tick.period_ns / NS_PER_S)
        if not alarms.any():
            return
        self.reported = {
            key: time_ns for key, time_ns in self.reported.items() if 0 <= tick.end_ns - time_ns < REPEAT_NS
        }
        for kind, slot in np.argwhere(alarms).tolist():
            detector, subject = DETECTORS[kind], table.names[slot]
            key = f"{detector} {subject}"
            if key in self.reported:
                continue
            self.reported[key] = tick.end_ns
            since_ns = round(float(self.model.since_s[kind, slot]) * NS_PER_S)
            metric = GPU.metrics[int(COLUMNS[kind])]
            count = Evidence(
                name=metric.key, value=float(self.model.errors[kind, slot]), expected=0.0, unit=metric.unit
            )
            evidence = (count, *(self._links(subject, tick.end_ns) if detector == "nvlink" else ()))
            yield seen.anomaly(table, slot, detector, 0.8, evidence, since_ns)

    def _links(self, device: str, now_ns: int) -> Iterator[Evidence]:
        """Evidence for NVLinks that the agent reported recently, the one with most errors first."""
        known = {n: e for n, e in self.events.get(device, {}).items() if 0 <= now_ns - e.time_ns < EVENT_NS}
        for link, event in sorted(known.items(), key=lambda item: (-(item[1].count or 0), item[0])):
            name = f"nvidia.gpu.nvlink.errors{{link={link}}}"
            yield Evidence(name=name, value=float(event.count or 0), expected=0.0, unit="{error}", record=event.id)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        events = {device: [pack_struct(e) for e in of.values()] for device, of in self.events.items()}
        return {**super().state(), "reported": self.reported, "events": events}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self.reported = dict(state["reported"])
        events = {device: [unpack_struct(raw, NodeEvent) for raw in raws] for device, raws in state["events"].items()}
        self.events = {device: {e.link: e for e in of if e.link is not None} for device, of in events.items()}
