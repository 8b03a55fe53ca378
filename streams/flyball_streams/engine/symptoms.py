"""The symptoms of a tick, one for each place and detector; cell lanes group them into incidents."""

from collections.abc import Iterator
from typing import get_args

from msgspec.structs import replace

from flyball_contracts.records import Anomaly, NodeEvent, ProposalTick, Symptom, Tick
from flyball_contracts.records.events import EventKind
from flyball_streams.engine.causes import of_anomaly, of_event

MOST_IN_ONE = 400
"""Most symptoms in one message: some 500 bytes each, and brokers accept a megabyte."""
STATISTICAL = frozenset(
    {"departure", "sojourn", "subspace", "straggling", "step_time", "course", "slow_answers", "no_answers"}
)
"""Detectors whose limits operators' labels adjust."""
NO_TELEMETRY = "no_telemetry"
"""Detector of nodes that have stopped sending telemetry."""
EVENT_KINDS = frozenset[str](get_args(EventKind))
CRITICAL = 0.9
TEXT = 200
Key = tuple[str, str, str, str]


class Symptoms:
    """Symptoms of one tick; repeats at one place are counted, so a flood of errors is one symptom."""

    def __init__(self) -> None:
        self._found: dict[Key, Symptom] = {}
        self._more: dict[Key, int] = {}

    def note_event(self, event: NodeEvent, workload: str) -> None:
        """Add an event; ``workload`` is the one on its device, empty for none."""
        cause = of_event(event)
        if cause is None:
            return
        gang = cause[1] == "effect" and bool(workload)
        detector = f"{event.kind} {event.code}" if event.code is not None else event.kind
        place: Key = ("", "", workload, detector) if gang else (event.node, event.device, "", detector)
        if place in self._found:
            self._more[place] = self._more.get(place, 0) + 1
            return
        self._found[place] = Symptom(
            detector=detector, cause=cause[0], strength=cause[1], severity=event.severity, since_ns=event.time_ns,
            time_ns=event.time_ns, node=event.node, device=event.device, workload=workload, gang=gang,
            record=event.id, text=event.message[:TEXT],
        )  # fmt: skip

    def note_anomaly(self, anomaly: Anomaly) -> None:
        """Add an anomaly."""
        found = symptom_of(anomaly)
        place = found.node, found.device, found.workload, found.detector
        self._found[place] = found
        self._more.pop(place, None)

    def note(self, symptom: Symptom) -> None:
        """Add a symptom that comes from neither an event nor an anomaly."""
        self._found[symptom.node, symptom.device, symptom.workload, symptom.detector] = symptom

    def messages(self, cell: str, source: str, tick: Tick, first_part: int) -> Iterator[ProposalTick]:
        """Messages of the tick, numbered from ``first_part`` on."""
        found = [
            replace(symptom, count=symptom.count + more) if (more := self._more.get(place, 0)) else symptom
            for place, symptom in self._found.items()
        ]
        for part, first in enumerate(range(0, len(found), MOST_IN_ONE), first_part):
            yield ProposalTick(
                cell=cell, source=source, tick=tick, part=part, closes=False,
                symptoms=tuple(found[first : first + MOST_IN_ONE]),
            )  # fmt: skip


def is_of_event(symptom: Symptom) -> bool:
    """Whether a symptom is of an event: it is published once, while those of anomalies and silences are repeated."""
    return symptom.detector.partition(" ")[0] in EVENT_KINDS


def symptom_of(anomaly: Anomaly) -> Symptom:
    """The symptom of an anomaly; an anomaly of a whole workload names its first device only as evidence."""
    cause, strength = of_anomaly(anomaly)
    whole = bool(anomaly.workload) and anomaly.subject == anomaly.workload
    failing = strength == "fault" or anomaly.score >= CRITICAL
    return Symptom(
        detector=anomaly.detector, cause=cause, strength=strength, severity="critical" if failing else "warning",
        since_ns=anomaly.time_ns if anomaly.since_ns is None else anomaly.since_ns, time_ns=anomaly.time_ns,
        node=anomaly.node, device="" if whole or anomaly.subject == anomaly.node else anomaly.subject,
        workload=anomaly.workload, gang=whole, score=anomaly.score,
        statistical=anomaly.detector in STATISTICAL, record=anomaly.id, evidence=anomaly.evidence,
    )  # fmt: skip
