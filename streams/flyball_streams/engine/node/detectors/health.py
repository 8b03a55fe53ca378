"""Devices that fail or hold their peers back."""

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU
from flyball_contracts.records import Evidence, NodeEvent
from flyball_contracts.xids import xid_of
from flyball_models.anomaly import peers
from flyball_streams.engine.node.blame import MOVES, REPEATS, Blame
from flyball_streams.engine.packing import arrays, like, pack_struct, unpack_struct, wiped

SUSPECT = "suspect"
"""Detector of devices that get no new work, and keep what they have."""
UNCORRECTED = GPU.column("hw.errors{type=uncorrected}")
RECOVERY = GPU.column("nvidia.gpu.recovery_action")
PEER_METRICS = ("nvidia.gpu.clock.frequency{clock=sm}", "hw.temperature{sensor=gpu}", "hw.power")
PEER_COLUMNS = np.array([GPU.column(key) for key in PEER_METRICS])
"""What a finding tells of a straggler and its peers; what makes it one is the first alone."""
CLOCK = 0
CLOCK_FLOOR = np.array([0.01], np.float32)
"""A difference between healthy peers that is not worth noticing, as a share of the clock."""
UNITS = tuple(GPU.metrics[int(c)].unit for c in PEER_COLUMNS)

_evidence = msgspec.msgpack.Encoder()
_evidence_decoder = msgspec.msgpack.Decoder(tuple[Evidence, ...])


class Finding(NamedTuple):
    """One unhealthy device: its slot, what found it, why in words, and the numbers."""

    slot: int
    detector: str
    score: float
    reason: str
    evidence: tuple[Evidence, ...]


class Health:
    """Follows the health of the devices of one cell."""

    def __init__(self, capacity: int) -> None:
        self.peers = peers.init(capacity, 1)
        self.events: dict[str, NodeEvent] = {}
        self.avoided: dict[str, NodeEvent] = {}
        self.blame = Blame()
        self.broken: dict[str, Finding] = {}
        self.asked: set[str] = set()

    def resize(self, capacity: int) -> None:
        """Make room for more devices."""
        self.peers = peers.resize(self.peers, capacity)

    def wipe(self, slots: list[int]) -> None:
        """Start anew where a slot has become another device's."""
        fresh = peers.init(self.peers.history.shape[-1], 1)
        self.peers = wiped(self.peers, fresh, slots)

    def note(self, device: str, event: NodeEvent, workload: str) -> None:
        """Take an event in that strikes a device, held by a workload or by none.

        The driver's own verdict outranks statistics, and stays until the device is reset or its node boots.
        """
        verdict = self.blame.judge(device, event, workload)
        if verdict == "move":
            self.events[device] = event
            self.avoided.pop(device, None)
        elif verdict == "avoid" and device not in self.events:
            self.avoided[device] = event

    def forget(self, devices: list[str]) -> None:
        """Drop what was held against some devices: they were reset, or are gone."""
        for device in devices:
            self.events.pop(device, None)
            self.avoided.pop(device, None)
            self.blame.forget(device)
            self.broken.pop(device, None)
            self.asked.discard(device)

    def sick(self) -> set[str]:
        """Devices that are known to fail: they are slow for another reason than a straggler."""
        return self.broken.keys() | self.events.keys()

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        broken = {
            d: [f.slot, f.detector, f.score, f.reason, _evidence.encode(f.evidence)] for d, f in self.broken.items()
        }
        events = {device: pack_struct(e) for device, e in self.events.items()}
        return {
            "peers": arrays(self.peers),
            "events": events,
            "avoided": {device: pack_struct(e) for device, e in self.avoided.items()},
            "blame": self.blame.state(),
            "broken": broken,
            "asked": sorted(self.asked),
        }

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Take on the state of a snapshot."""
        self.peers = like(peers.init(capacity, 1), state["peers"])
        self.events = {device: unpack_struct(raw, NodeEvent) for device, raw in state["events"].items()}
        self.avoided = {device: unpack_struct(raw, NodeEvent) for device, raw in state["avoided"].items()}
        self.blame.load(state["blame"])
        self.asked = set(state["asked"])
        self.broken = {
            device: Finding(slot, detector, score, reason, _evidence_decoder.decode(raw))
            for device, (slot, detector, score, reason, raw) in state["broken"].items()
        }

    def findings(
        self,
        values: NDArray[np.float32],
        mask: NDArray[np.bool_],
        group: NDArray[np.int32],
        slots: dict[str, int],
        names: list[str],
        quiet: set[int],
    ) -> list[Finding]:
        """Unhealthy devices of this tick, by slot; ``group`` puts peers together, -1 for none.

        Of those in the slots ``quiet`` nothing is said.
        """
        found: dict[int, Finding] = {}
        if (group >= 0).any():
            found.update(self._stragglers(values, mask, group, quiet))
        for device in sorted(self.asked):
            if device in slots and values[slots[device], RECOVERY] == 0:
                self.forget([device])  # the driver asked for a recovery and no longer does: it has been done
        for slot in (mask & ((values[:, UNCORRECTED] > 0) | (values[:, RECOVERY] > 0))).nonzero()[0].tolist():
            if values[slot, RECOVERY] > 0:
                self.asked.add(names[slot])
            if names[slot] not in self.broken:
                self.broken[names[slot]] = _broken(slot, values[slot])
        for device, event in self.avoided.items():
            if (slot := slots.get(device, -1)) >= 0 and slot not in quiet:
                found[slot] = _reported(slot, event, SUSPECT)
        for device, finding in self.broken.items():
            if (slot := slots[device]) not in quiet:
                found[slot] = finding
        for device, event in self.events.items():
            if (slot := slots.get(device, -1)) >= 0 and slot not in quiet:
                found[slot] = _reported(slot, event, "failing")
        return [found[slot] for slot in sorted(found)]

    def _stragglers(
        self, values: NDArray[np.float32], mask: NDArray[np.bool_], group: NDArray[np.int32], quiet: set[int]
    ) -> dict[int, Finding]:
        clock = values[:, PEER_COLUMNS[:1]]
        relative = np.log(clock, out=np.full_like(clock, np.nan), where=clock > 0)
        z = peers.deviations(relative, group, mask, CLOCK_FLOOR)
        self.peers, alarm = peers.persist(
            self.peers, z, mask, k=peers.SLOW_TICKS, m=peers.OF_TICKS, threshold=peers.FAR_Z
        )
        slow = alarm[:, 0] & (z[:, 0] < 0) & mask
        found: dict[int, Finding] = {}
        for slot in np.flatnonzero(slow).tolist():
            if slot in quiet:
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
