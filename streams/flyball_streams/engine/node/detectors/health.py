"""Detects devices that fail, and devices that are slower than their peers; proposes to move work off them."""

from collections.abc import Iterator
from math import exp
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import record_id
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Anomaly, Evidence, NodeEvent, Proposal
from flyball_contracts.xids import xid_of
from flyball_models.anomaly import peers
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.detectors.attribution import MOVES, REPEATS, FaultAttribution
from flyball_streams.engine.node.detectors.gangs import Gangs
from flyball_streams.engine.packing import pack_struct, unpack_struct

SUSPECT = "suspect"
"""Detector of devices that get no new work but keep what they run."""
UNCORRECTED = GPU.column("hw.errors{type=uncorrected}")
RECOVERY = GPU.column("nvidia.gpu.recovery_action")
FAULTS = np.array([UNCORRECTED, RECOVERY])
PEER_METRICS = ("nvidia.gpu.clock.frequency{clock=sm}", "hw.temperature{sensor=gpu}", "hw.power")
PEER_COLUMNS = np.array([GPU.column(key) for key in PEER_METRICS])
"""Metrics in the evidence of a straggler; only the first is compared."""
CLOCK = 0
CLOCK_FLOOR = np.array([0.01], np.float32)
"""Smallest relevant difference between peers, as a share of the clock."""
NEAR = exp(-0.99 * peers.FAR_Z * float(CLOCK_FLOOR[0]))
"""Ratio of two clocks, with a margin for rounding, above which neither is far from the other."""
UNITS = tuple(GPU.metrics[int(c)].unit for c in PEER_COLUMNS)
REPEAT_TICKS = 30

_evidence = msgspec.msgpack.Encoder()
_evidence_decoder = msgspec.msgpack.Decoder(tuple[Evidence, ...])


class Finding(NamedTuple):
    """One unhealthy device: its slot, detector, score, reason and evidence."""

    slot: int
    detector: str
    score: float
    reason: str
    evidence: tuple[Evidence, ...]


class Health(Detector[peers.State]):
    """Monitors the health of the devices of one cell.

    ``events`` are events that require work to move off a device, ``avoided`` those that only bar new work.
    ``broken`` are devices with uncorrected errors or a requested recovery; their evidence names the anomaly that
    reported it, nothing if it was seen since. ``recovery_requested`` are devices whose driver requests a recovery
    action. ``reported`` is the tick of the last report of each device.
    """

    def __init__(self, gangs: Gangs, capacity: int) -> None:
        self.gangs = gangs
        super().__init__(capacity, lambda slots: peers.init(slots, 1))
        self.events: dict[str, NodeEvent] = {}
        self.avoided: dict[str, NodeEvent] = {}
        self.attribution = FaultAttribution()
        self.broken: dict[str, Finding] = {}
        self.recovery_requested: set[str] = set()
        self.reported: dict[str, int] = {}

    def retire(self, subjects: list[str]) -> None:
        """Drop all findings about some devices: they were reset, or are gone."""
        for device in subjects:
            self.events.pop(device, None)
            self.avoided.pop(device, None)
            self.attribution.forget(device)
            self.broken.pop(device, None)
            self.recovery_requested.discard(device)

    def boot(self, devices: list[str]) -> None:
        """Drop all findings about devices whose node has booted."""
        self.retire(devices)

    def failing(self) -> set[str]:
        """Devices that are known to fail; they are not compared with peers."""
        return self.broken.keys() | self.events.keys()

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        broken = {
            d: [f.slot, f.detector, f.score, f.reason, _evidence.encode(f.evidence)] for d, f in self.broken.items()
        }
        events = {device: pack_struct(e) for device, e in self.events.items()}
        return {
            **super().state(),
            "events": events,
            "avoided": {device: pack_struct(e) for device, e in self.avoided.items()},
            "attribution": self.attribution.state(),
            "broken": broken,
            "recovery_requested": sorted(self.recovery_requested),
            "reported": self.reported,
        }

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self.events = {device: unpack_struct(raw, NodeEvent) for device, raw in state["events"].items()}
        self.avoided = {device: unpack_struct(raw, NodeEvent) for device, raw in state["avoided"].items()}
        self.attribution.load(state["attribution"])
        self.recovery_requested, self.reported = set(state["recovery_requested"]), dict(state["reported"])
        self.broken = {
            device: Finding(slot, detector, score, reason, _evidence_decoder.decode(raw))
            for device, (slot, detector, score, reason, raw) in state["broken"].items()
        }

    def step(self, seen: CellTick) -> Iterator[Anomaly | Proposal]:
        """Unhealthy devices by slot, each at most once in ``REPEAT_TICKS``, and notices to owners of workloads.

        The driver's verdict on an event outranks statistics, and holds until the device is reset or its node boots.
        """
        for event, devices in seen.events:
            for device, workload in devices.items():
                verdict = self.attribution.attribute(device, event, workload)
                if verdict == "move":
                    self.events[device] = event
                    self.avoided.pop(device, None)
                elif verdict == "avoid" and device not in self.events:
                    self.avoided[device] = event
        for finding in self._findings(seen) if seen.gpus.mask.any() else ():
            device = seen.gpus.names[finding.slot]
            self.reported[device] = seen.tick.index
            anomaly = seen.anomaly(seen.gpus, finding.slot, finding.detector, finding.score, finding.evidence)
            if self.broken.get(device) is finding and not any(one.record for one in finding.evidence):
                self.broken[device] = _citing(finding, anomaly.id)
            yield anomaly
            yield _proposal(finding, anomaly, seen)
        yield from self._notices(seen)

    def _findings(self, seen: CellTick) -> list[Finding]:
        values, mask, slots, names = seen.gpus.values, seen.gpus.mask, seen.gpus.slots, seen.gpus.names
        self.reported = {d: i for d, i in self.reported.items() if 0 <= seen.tick.index - i < REPEAT_TICKS}
        skip, group = {slots[d] for d in self.reported if d in slots}, self.gangs.whole(seen.tenancy)
        found: dict[int, Finding] = {}
        if (group >= 0).any():
            found.update(self._stragglers(values, mask, group, skip))
        for device in sorted(self.recovery_requested):
            if device in slots and values[slots[device], RECOVERY] == 0:
                self.retire([device])  # the driver no longer requests a recovery: it has been done
        faults = values.take(FAULTS, axis=1) > 0
        for slot in (mask & faults.any(axis=1)).nonzero()[0].tolist() if faults.any() else ():
            if values[slot, RECOVERY] > 0:
                self.recovery_requested.add(names[slot])
            known = self.broken.get(names[slot])
            self.broken[names[slot]] = _broken(slot, values[slot]) if known is None else _citing(known, "")
        for device, event in self.avoided.items():
            if (slot := slots.get(device, -1)) >= 0 and slot not in skip:
                found[slot] = _reported(slot, event, SUSPECT)
        for device, finding in self.broken.items():
            if (slot := slots[device]) not in skip:
                found[slot] = finding
        for device, event in self.events.items():
            if (slot := slots.get(device, -1)) >= 0 and slot not in skip:
                found[slot] = _reported(slot, event, "failing")
        return [found[slot] for slot in sorted(found)]

    def _notices(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies for the owners of workloads: errors of their programs, which move no work."""
        for workload, event, devices in self.attribution.take_notices():
            code = event.code or 0
            yield Anomaly(
                id=record_id("Anomaly", seen.cell, workload, "application", code, event.id),
                subject=workload,
                cell=seen.cell,
                node=event.node,
                time_ns=seen.tick.end_ns,
                detector="application",
                score=0.5,
                evidence=(
                    Evidence(name="xid", value=float(code), record=event.id),
                    Evidence(name="devices", value=float(devices), unit="{device}"),
                ),
                workload=workload,
                since_ns=event.time_ns,
            )

    def _stragglers(
        self, values: NDArray[np.float32], mask: NDArray[np.bool_], group: NDArray[np.int32], skip: set[int]
    ) -> dict[int, Finding]:
        if not np.asarray(self.model.history).any() and _are_alike(values[mask & (group >= 0), PEER_COLUMNS[CLOCK]]):
            return {}  # most ticks: no device was slow recently, and none is now
        clock = values[:, PEER_COLUMNS[:1]]
        relative = np.log(clock, out=np.full_like(clock, np.nan), where=clock > 0)
        z = peers.deviations(relative, group, mask, CLOCK_FLOOR)
        self.model, alarm = peers.persist(
            self.model, z, mask, k=peers.SLOW_TICKS, m=peers.OF_TICKS, threshold=peers.FAR_Z
        )
        slow = alarm[:, 0] & (z[:, 0] < 0) & mask
        found: dict[int, Finding] = {}
        for slot in np.flatnonzero(slow).tolist():
            if slot in skip:
                continue
            same, x = mask & (group == group[slot]), values[slot, PEER_COLUMNS]
            medians = [_median(column[np.isfinite(column)]) for column in values[same][:, PEER_COLUMNS].T]
            evidence = tuple(
                Evidence(name=name, value=float(x[i]), expected=medians[i], unit=UNITS[i])
                for i, name in enumerate(PEER_METRICS)
                if np.isfinite(x[i])
            )
            reason = (
                f"its SM clock is {x[CLOCK] / 1e6:.0f} MHz where its {int(same.sum()) - 1} peers run at "
                f"{(medians[CLOCK] or 0.0) / 1e6:.0f} MHz, in {peers.SLOW_TICKS} of the last {peers.OF_TICKS} ticks"
            )
            score = 1.0 - 1.0 / (1.0 + abs(float(z[slot, 0])))
            found[slot] = Finding(slot, "straggling", score, reason, evidence)
        return found


def _proposal(finding: Finding, anomaly: Anomaly, seen: CellTick) -> Proposal:
    holder = seen.tenancy.replica_of_slot.get(finding.slot, ("", ""))
    workload, replica = ("", "") if finding.detector == SUSPECT else holder
    return Proposal(
        id=record_id("Proposal", "migrate", seen.cell, anomaly.subject, seen.tick.index),
        action="migrate",
        workload=workload,
        reason=f"device {anomaly.subject} of {anomaly.node} is {finding.detector}: {finding.reason}",
        replica=replica,
        node=anomaly.node,
        device=anomaly.subject,
        confidence=0.95 if finding.detector == "failing" else 0.8,
        evidence=(*finding.evidence, Evidence(name="anomaly", value=finding.score, record=anomaly.id)),
    )


def _are_alike(clock: NDArray[np.float32]) -> bool:
    """Whether some clocks are so near to each other that none is ``FAR_Z`` times the floor from any median."""
    known = clock[(clock > 0) & np.isfinite(clock)]
    return not len(known) or bool(known.min() > known.max() * NEAR)


def _median(known: NDArray[np.float32]) -> float | None:
    """Median of a few values, ``None`` of none; ``np.median`` takes ten times as long."""
    n, ascending = len(known), np.sort(known)
    return float(np.float32(0.5) * (ascending[(n - 1) // 2] + ascending[n // 2])) if n else None


def _broken(slot: int, row: NDArray[np.float32]) -> Finding:
    errors, action = float(row[UNCORRECTED]), float(row[RECOVERY])
    evidence = tuple(
        Evidence(name=GPU.metrics[c].key, value=float(row[c]), expected=0.0, unit=GPU.metrics[c].unit)
        for c in (UNCORRECTED, RECOVERY)
        if np.isfinite(row[c])
    )
    what = f"{errors:.0f} uncorrected ECC errors" if errors > 0 else f"the driver asks for recovery action {action:.0f}"
    return Finding(slot, "failing", 1.0, what, evidence)


def _citing(finding: Finding, record: str) -> Finding:
    """A finding whose evidence names the record that reported it, so that its repeats are no news; empty for none."""
    return finding._replace(evidence=tuple(replace(one, record=record) for one in finding.evidence))


def _reported(slot: int, event: NodeEvent, detector: str) -> Finding:
    code = f"XID {event.code}" if event.code is not None else event.kind
    value = float(event.code) if event.code is not None else 1.0
    evidence = (Evidence(name=event.kind, value=value, record=event.id),)
    score = 1.0 if detector == "failing" else 0.7
    known = xid_of(event.code) if event.kind == "xid" and event.code is not None else None
    named = f"{code} (unknown)" if known is not None and known.fault == "unknown" else code
    asks = event.remedy.replace("_", " ")
    if detector == "failing" and event.remedy not in MOVES:
        return Finding(slot, detector, score, f"{named} came with {REPEATS} different workloads in a day", evidence)
    return Finding(
        slot,
        detector,
        score,
        f"{named} asks for {asks}" if asks.startswith("no ") else f"{named} asks to {asks}",
        evidence,
    )
