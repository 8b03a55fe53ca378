"""Profiles of workloads, and wasted GPU time; both are insights."""

from typing import Literal

from flyball_contracts.records.base import Evidence, Part, Record, TimeNs


class Opinion(Part, frozen=True, kw_only=True):
    """The estimate of one method for a workload, and the method's error rate; empty where it has no evidence.

    ``declared`` is the owner's specification, ``name`` the words in the workload's name, ``historic`` its last run,
    ``online`` its telemetry now.
    """

    method: Literal["declared", "name", "historic", "online"]
    kind: str = ""
    family: str = ""
    error: float


class Similar(Part, frozen=True, kw_only=True):
    """Another workload with similar telemetry; 1 is identical."""

    workload: str
    similarity: float


class WorkloadProfile(Record, frozen=True, kw_only=True):
    """Kind, model family and bottleneck of a workload, over all its GPUs.

    ``kinds``, ``families`` and ``bounds`` are probabilities, without those under a hundredth; ``opinions`` are the
    estimates that they combine. ``strangeness`` above 1 means that it is of no known model family. ``fingerprint`` are
    its features in standard deviations of all work (see ``flyball_models.profile.course``), ``fingerprint_error`` their
    recent change. ``seen_s`` is the duration of telemetry behind it. ``step_s`` is the time of a training step, as
    reported or as the period of its load.
    """

    id: str
    subject: str
    cell: str
    time_ns: TimeNs
    kinds: dict[str, float]
    families: dict[str, float]
    bounds: dict[str, float]
    opinions: tuple[Opinion, ...]
    strangeness: float | None
    fingerprint: tuple[float | None, ...]
    fingerprint_error: float | None
    seen_s: float
    devices: int
    similar: tuple[Similar, ...] = ()
    step_s: float | None = None
    cold_start_prior_s: float | None = None


class Waste(Record, frozen=True, kw_only=True):
    """GPU time that was paid for and not used, since ``from_ns``, of one workload or of the free GPUs of a node.

    Each GPU counts for one ``category`` at a time, so that sums count nothing twice. ``gpu_hours`` are those lost:
    a GPU that is half used loses half an hour in an hour. ``usd`` is ``None`` if the price is unknown. ``action`` would
    recover it; ``proposal`` describes how in a sentence.
    """

    id: str
    subject: str
    cell: str
    time_ns: TimeNs
    from_ns: TimeNs
    category: Literal["idle", "notebook", "input_starved", "low_duty", "oversized", "stranded"]
    gpu_hours: float
    devices: int
    action: Literal["scale", "preempt", "resize", "migrate"]
    proposal: str
    usd: float | None = None
    node: str = ""
    evidence: tuple[Evidence, ...] = ()
