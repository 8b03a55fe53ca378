"""Incidents among what an engine sends."""

from collections.abc import Iterator, Sequence

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, decode_record
from flyball_contracts.records import Incident


def incidents_in(messages: Sequence[Message]) -> Iterator[Incident]:
    """Yield the incidents, in order; one that changes is sent again."""
    for made in messages:
        if header(made.headers, "ce_type") == "io.flyball.Incident":
            record = decode_record(made.topic, made.value, made.headers)
            if isinstance(record, Incident):
                yield record
