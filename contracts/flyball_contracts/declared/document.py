"""A workload as its owner declares it, and its conversion to a specification."""

from typing import Annotated, Any

import msgspec

from flyball_contracts.config import Section
from flyball_contracts.declared.moments import moment_ns, moment_text
from flyball_contracts.records import Architecture, Objective, WorkloadSpec
from flyball_contracts.records.workloads import (
    Amount,
    PositiveInt,
    PositiveSeconds,
    Priority,
    Replicas,
    Seconds,
    Share,
    WorkloadKind,
)

Name = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$",
        description="letters, digits, and '.', '_' or '-' between them, at most 253",
    ),
]
OneLine = Annotated[
    str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f]{1,253}$", description="1 to 253 characters on one line")
]


class ObjectiveSection(Section, frozen=True, kw_only=True):
    """The objective: :class:`~flyball_contracts.records.Objective` with its ranges."""

    delay_s: PositiveSeconds
    attainment: Share = 0.99
    token_s: PositiveSeconds | None = None
    first_token_s: PositiveSeconds | None = None


class WorkloadDocument(Section, frozen=True, kw_only=True):
    """The fields of :class:`~flyball_contracts.records.WorkloadSpec` that are the owner's, with their ranges.

    ``deadline`` is a moment with its time zone, or a duration from now.
    """

    workload: Name
    kind: WorkloadKind
    cell: Name = "default"
    tenant: OneLine = "default"
    priority: Priority = 0
    gang_size: PositiveInt = 1
    gpus_per_replica: Amount = 1.0
    gpu_models: tuple[OneLine, ...] = ()
    min_replicas: Replicas = 0
    max_replicas: Replicas = 1
    capacity_per_replica: Amount = 0.0
    target_utilization: Share = 0.8
    cold_start_s: Seconds = 60.0
    objective: ObjectiveSection | None = None
    interruptible: bool = False
    checkpoint_s: Seconds = 0.0
    restart_hung_after_s: PositiveSeconds | None = None
    deadline: str | None = None
    duration_s: PositiveSeconds | None = None
    power_w_per_replica: Amount | None = None
    model: Architecture | None = None

    def contradiction(self) -> tuple[str, str] | None:
        """The key of a limit that contradicts another, and the remedy; ``None`` where all agree."""
        gang, least, most = self.gang_size, self.min_replicas, self.max_replicas
        if least > most:
            return (
                "min_replicas",
                f"{least} is more than max_replicas, which is {most}; lower it, or raise max_replicas",
            )
        if gang > max(most, 1):
            return "gang_size", f"{gang} is more than max_replicas, which is {most}: the gang could never run"
        if most - most % gang < least:
            return "min_replicas", f"no number of replicas from {least} to {most} is whole gangs of {gang}"
        if self.deadline is not None and self.duration_s is None:
            return "deadline", "it needs duration_s, the running time in all, to know when to start at the latest"
        if self.model is not None and self.model.heads % self.model.kv_heads:
            return "model.kv_heads", f"{self.model.kv_heads} does not divide heads, which is {self.model.heads}"
        return None

    def spec(self, now_ns: int) -> WorkloadSpec:
        """The specification as of now; raises :class:`ValueError` for an invalid deadline."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        deadline, objective = fields.pop("deadline"), self.objective
        fields["deadline_ns"] = None if deadline is None else moment_ns(deadline, now_ns)
        fields["objective"] = None if objective is None else Objective(**msgspec.structs.asdict(objective))
        return WorkloadSpec(time_ns=now_ns, **fields)


def plain(spec: WorkloadSpec) -> dict[str, Any]:
    """All declared values in the terms and order of a document, as built-in types."""
    data: dict[str, Any] = msgspec.to_builtins(spec)
    data["deadline"] = None if spec.deadline_ns is None else moment_text(spec.deadline_ns)
    return {name: data[name] for name in WorkloadDocument.__struct_fields__}


def written(spec: WorkloadSpec) -> dict[str, Any]:
    """:func:`plain` without default values."""
    blank = plain(WorkloadSpec(workload="", cell="default", time_ns=0, kind="inference"))
    data = {key: value for key, value in plain(spec).items() if key in ("workload", "kind") or value != blank[key]}
    for key, kind in (("objective", Objective), ("model", Architecture)):
        if data.get(key) is not None:
            usual = {f.name: f.default for f in msgspec.structs.fields(kind)}
            data[key] = {name: value for name, value in data[key].items() if value != usual[name]}
    return data
