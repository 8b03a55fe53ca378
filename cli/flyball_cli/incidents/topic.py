"""Incidents and responses on their topics."""

from flyball_cli.compacted import read_compacted, write_records
from flyball_cli.explain.story import read_incidents
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import FlyballError
from flyball_contracts.records import Incident, Response, Silence
from flyball_contracts.topics import RESPONSES

CLIENT = "flyball-incidents"
_SEVERITY = {"critical": 0, "warning": 1, "info": 2}
_STRENGTH = {"fault": 0, "sign": 1, "effect": 2}
_LEVEL = {"cell": 0, "node": 1, "link": 2, "gpu": 3, "workload": 4}


class UnknownIncident(FlyballError):
    """No incident has the id that was asked for, or more than one begins with it."""


def worst_first(found: dict[str, Incident]) -> list[Incident]:
    """Open incidents by how bad they are and how much is known, silenced ones after them; then those that ended."""

    def place(one: Incident) -> tuple[int, ...]:
        ended = one.status != "open"
        worst = _SEVERITY[one.severity], _STRENGTH[one.strength], _LEVEL[one.level], -one.gpus_affected, one.onset_ns
        return (ended, bool(one.silence), *((-one.time_ns,) if ended else worst))

    return sorted(found.values(), key=lambda one: (*place(one), one.id))


def find(kafka: KafkaConfig, id_: str, since_s: float) -> Incident:
    """The incident whose id is, or begins with, ``id_``; where it was merged, what it was merged into.

    Raises :class:`UnknownIncident`, and :class:`TransportError` when the broker does not answer.
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
    """Silences that are not removed, the newest of each name; those that have ended are among them."""
    known: dict[str, Silence] = {}
    for key, record in read_compacted(kafka, RESPONSES, CLIENT):
        known.pop(key, None)
        if isinstance(record, Silence) and not record.removed:
            known[key] = record
    return list(known.values())


def answer(kafka: KafkaConfig, record: Response) -> None:
    """Publish a response; :class:`TransportError` where the broker does not acknowledge it."""
    write_records(kafka, [record], CLIENT, "responses")
