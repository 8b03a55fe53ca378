"""Symptoms that lanes detected, and the incidents that they belong to."""

from typing import Literal

from flyball_contracts.records.base import Evidence, Part, Record, TimeNs
from flyball_contracts.records.commands.decisions import DecisionType
from flyball_contracts.records.commands.outcomes import OutcomeStatus
from flyball_contracts.records.events import Severity

Cause = Literal[
    "gpu", "gpu_memory", "thermal", "power", "pcie", "nvlink", "network", "storage", "host", "neighbour",
    "driver", "application", "reclaimed", "telemetry", "intervention", "unknown",
]  # fmt: skip
"""``intervention`` is a decision of ours, ``reclaimed`` one of the cloud that takes a machine back or maintains it."""
Strength = Literal["effect", "sign", "fault"]
"""A ``fault`` shows what is broken, a ``sign`` points at a place, an ``effect`` may have its cause elsewhere."""
Level = Literal["gpu", "link", "node", "workload", "rack", "leaf", "cell"]
IncidentStatus = Literal["open", "resolved", "merged"]


class Symptom(Part, frozen=True, kw_only=True):
    """A finding of one lane in a tick about one GPU, node or workload, ``count`` times.

    A ``device`` or else a ``node`` is the place that it points at; with neither, or with ``gang``, the whole workload
    shows it. ``since_ns`` is when it began. ``score`` is that of the anomaly, 1 for an event. ``record`` is the id of
    the first event or of the anomaly. ``statistical`` ones may be false, and labels make them rarer.
    """

    detector: str
    cause: Cause
    strength: Strength
    severity: Severity
    since_ns: TimeNs
    time_ns: TimeNs
    node: str = ""
    device: str = ""
    workload: str = ""
    gang: bool = False
    score: float = 1.0
    statistical: bool = False
    count: int = 1
    record: str = ""
    text: str = ""
    evidence: tuple[Evidence, ...] = ()


class IncidentAction(Part, frozen=True, kw_only=True):
    """A decision that was made because of an incident, or that explains it, with its newest outcome."""

    decision: str
    type: DecisionType
    workload: str
    time_ns: TimeNs
    status: OutcomeStatus | Literal["decided"] = "decided"
    detail: str = ""


class Incident(Record, frozen=True, kw_only=True):
    """One incident as known at ``time_ns``; a later record of an ``id`` replaces it.

    ``level`` is the kind of place that the cause has: ``node``, ``device``, ``link`` (two devices, joined by ``|``) or
    ``workload`` names it, ``domain`` names a ``rack`` or a ``leaf`` switch; a cell is named by ``cell``. ``model`` is
    that of its GPU. ``onset_ns`` is when the first symptom began and ``seen_ns`` when the last one was seen. ``score``
    is that of the strongest symptom. ``symptoms`` are the evidence, the cause first, of ``symptom_count`` in all.
    ``devices``, ``nodes`` and ``workloads`` are those that show symptoms, some of ``gpus_affected``; ``peers`` are the
    other nodes of their gangs. ``merged_into`` is the incident that this one turned out to be part of. ``silence`` is
    the name of the silence that matches it: then no decision and no notification follows. ``label`` is an operator's
    verdict whether it is true, ``None`` without one.
    """

    id: str
    cell: str
    revision: int
    status: IncidentStatus
    severity: Severity
    cause: Cause
    strength: Strength
    level: Level
    onset_ns: TimeNs
    seen_ns: TimeNs
    time_ns: TimeNs
    summary: str
    node: str = ""
    device: str = ""
    link: str = ""
    workload: str = ""
    model: str = ""
    score: float = 1.0
    symptom_count: int = 1
    symptoms: tuple[Symptom, ...] = ()
    gpus_affected: int = 0
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    actions: tuple[IncidentAction, ...] = ()
    ended_ns: TimeNs | None = None
    merged_into: str = ""
    acknowledged_by: str = ""
    silence: str = ""
    label: bool | None = None
    domain: str = ""


Condition = Literal["suspect", "watched", "cordoned", "drained", "checked", "back"]


class NodeCondition(Record, frozen=True, kw_only=True):
    """Whether a node may have work, and why; a later record of a node replaces it.

    ``suspect``: one sign, without consequences. ``watched``: several signs, or one that persists. ``cordoned``: a
    fault, signs that agree, or a move off one of its devices; nothing is placed on ``devices`` (empty: all) and
    replicas leave. ``drained``: no replica is left. ``checked``: there is ``evidence`` that it is healthy. ``back``: it
    takes work again. ``held`` says why it is not cordoned though it should be. ``gpus_moved`` are the GPUs of all
    replicas and gangs that leave or restart with it, not only of the faulty ones.
    """

    node: str
    cell: str
    time_ns: TimeNs
    revision: int
    condition: Condition
    since_ns: TimeNs
    reason: str
    devices: tuple[str, ...] = ()
    incidents: tuple[str, ...] = ()
    gpus_moved: int = 0
    held: str = ""
    evidence: str = ""
    checked_by: str = ""


SEVERITY: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}
RANK: dict[Strength, int] = {"effect": 0, "sign": 1, "fault": 2}
WIDTH: dict[Level, int] = {"workload": 0, "gpu": 1, "link": 2, "node": 3, "rack": 4, "leaf": 5, "cell": 6}
"""Order of severities, strengths and levels, the least first."""


def worst_first(one: Incident) -> tuple[int, int, int, int, int, int, str]:
    """Sort key of open incidents: severity, strength, width of the place, GPUs, age; silenced ones come last."""
    known = -RANK[one.strength], -WIDTH[one.level]
    return bool(one.silence), -SEVERITY[one.severity], *known, -one.gpus_affected, one.onset_ns, one.id
