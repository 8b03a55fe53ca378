"""The topic of workload specifications."""

from collections.abc import Sequence

from flyball_cli.compacted import read_compacted, write_records
from flyball_contracts.config import KafkaConfig
from flyball_contracts.records import WorkloadSpec
from flyball_contracts.tables import Tables
from flyball_contracts.topics import WORKLOADS

_CLIENT = "flyball-cli-workloads"


def read_topic(kafka: KafkaConfig) -> dict[str, WorkloadSpec]:
    """Newest specification of each workload, by name, including removed ones.

    Raises :class:`TransportError` when the broker does not respond or has no such topic.
    """
    tables = Tables()
    for key, record in read_compacted(kafka, WORKLOADS, _CLIENT):
        if record is None:
            tables.forget(WORKLOADS.name, key)
        else:
            tables.apply(record)
    return dict(sorted(tables.workloads.items()))


def write_topic(kafka: KafkaConfig, specs: Sequence[WorkloadSpec]) -> None:
    """Send specifications and wait until the broker has acknowledged all of them.

    Raises :class:`TransportError`, which names the unacknowledged ones; sending them again is safe.
    """
    write_records(kafka, specs, _CLIENT, "workloads")
