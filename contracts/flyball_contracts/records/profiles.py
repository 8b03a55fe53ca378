"""What workloads are found to be, and which of their GPU time is wasted; both are insights."""

from typing import Literal

from flyball_contracts.records.base import Evidence, Part, Record, TimeNs


class Opinion(Part, frozen=True, kw_only=True):
    """What one method says of a workload, and how often it is thought to be wrong; empty where it does not say.

    ``declared`` is the owner's specification, ``name`` the words in the workload's name, ``historic`` what it was when
    it ran before, ``online`` its telemetry now.
    """

    method: Literal["declared", "name", "historic", "online"]
    kind: str = ""
    family: str = ""
    error: float


class Similar(Part, frozen=True, kw_only=True):
    """Another workload whose telemetry is alike: 1 is the same."""

    workload: str
    similarity: float


class WorkloadProfile(Record, frozen=True, kw_only=True):
    """What a workload is, over all its GPUs, and what decisions take from that.

    ``kinds``, ``families`` and ``bounds`` are probabilities, of which those under a hundredth are left out;
    ``opinions`` are what they are mixed from. ``strangeness`` above 1 means that it is of no family that is known.
    ``fingerprint`` are its features in standard deviations of all work (see ``flyball_models.profile.course``),
    ``fingerprint_error`` how far they moved of late. ``seen_s`` is the telemetry that it rests on. ``step_s`` is the
    time of an iteration, as it reports it or as its load repeats itself.
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
    a GPU that is half used loses half an hour in an hour. ``usd`` is ``None`` where the price is not known.
    ``action`` would take it, as ``proposal`` says in a sentence.
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
