"""Many workloads as a table."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Column, Table
from rich.text import Text

from flyball_contracts.declared.moments import moment_text
from flyball_contracts.records import WorkloadSpec

_COLUMNS = {
    "workload": "left", "cell": "left", "kind": "left", "tenant": "left", "priority": "right", "replicas": "right",
    "GPUs each": "right", "objective": "left", "deadline": "left",
}  # fmt: skip


def tabulated(specs: Sequence[WorkloadSpec]) -> Table:
    """One line for each workload."""
    columns = [
        Column(name, justify="right" if side == "right" else "left", no_wrap=True) for name, side in _COLUMNS.items()
    ]
    table = Table(*columns, box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for spec in specs:
        values = (
            spec.workload, spec.cell, spec.kind, spec.tenant, str(spec.priority), _replicas(spec),
            f"{spec.gpus_per_replica:g}", _objective(spec), _deadline(spec),
        )  # fmt: skip
        table.add_row(*map(Text, values))
    return table


def summary(specs: Sequence[WorkloadSpec]) -> str:
    """Number of workloads by kind."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in Counter(spec.kind for spec in specs).most_common())
    cells = len({spec.cell for spec in specs})
    return f"{len(specs):,} workload{'s' * (len(specs) != 1)} in {cells} cell{'s' * (cells != 1)}: {kinds}"


def _replicas(spec: WorkloadSpec) -> str:
    span = (
        str(spec.min_replicas) if spec.min_replicas == spec.max_replicas else f"{spec.min_replicas}-{spec.max_replicas}"
    )
    return f"{span} in gangs of {spec.gang_size}" if spec.gang_size > 1 else span


def _objective(spec: WorkloadSpec) -> str:
    if spec.objective is None:
        return "interruptible" if spec.interruptible else ""
    return f"{100 * spec.objective.attainment:g} % < {spec.objective.delay_s:g} s"


def _deadline(spec: WorkloadSpec) -> str:
    return "" if spec.deadline_ns is None else moment_text(spec.deadline_ns)
