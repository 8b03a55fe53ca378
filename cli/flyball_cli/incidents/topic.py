"""Incidents and responses on their topics."""

from flyball_cli.compacted import read_compacted, write_records
from flyball_cli.explain.records import read_incidents
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import FlyballError
from flyball_contracts.records import Incident, Silence
from flyball_contracts.records.incidents import worst_first
from flyball_contracts.records.responses import AnyResponse
from flyball_contracts.topics import RESPONSES

CLIENT = "flyball-incidents"


class UnknownIncident(FlyballError):
    """No incident has the id that was requested, or more than one begins with it."""


def in_order(found: dict[str, Incident]) -> list[Incident]:
    """Open incidents, the most severe first and silenced ones last; then ended ones, the newest first."""
    opened = sorted((one for one in found.values() if one.status == "open"), key=worst_first)
    ended = (one for one in found.values() if one.status != "open")
    return [*opened, *sorted(ended, key=lambda one: (-one.time_ns, one.id))]


def find(kafka: KafkaConfig, id_: str, since_s: float) -> Incident:
    """The incident whose id is, or begins with, ``id_``; a merged one gives the incident that it was merged into.

    Raises :class:`UnknownIncident`, and :class:`TransportError` when the broker does not respond.
    """
    found = read_incidents(kafka, since_s)
    fitting = [found[name] for name in sorted(found) if name.startswith(id_)]
    if len(fitting) != 1:
        what = f"no incident of the last {since_s / 86_400:g} days has the id" if not fitting else "several begin with"
        shown = "" if not fitting else f": {', '.join(one.id for one in fitting[:5])}"
        raise UnknownIncident(f"{what} {id_!r}{shown}; list them with `flyball incidents list`, or raise --since")
    one = fitting[0]
    while one.merged_into in found:
        one = found[one.merged_into]
    return one


def silences(kafka: KafkaConfig) -> list[Silence]:
    """Silences that are not removed, the newest of each name, including ended ones."""
    known: dict[str, Silence] = {}
    for key, record in read_compacted(kafka, RESPONSES, CLIENT):
        known.pop(key, None)
        if isinstance(record, Silence) and not record.removed:
            known[key] = record
    return list(known.values())


def answer(kafka: KafkaConfig, record: AnyResponse) -> None:
    """Publish a response; :class:`TransportError` if the broker does not acknowledge it."""
    write_records(kafka, [record], CLIENT, "responses")
