"""Looks up in the outcomes topic how some decisions have ended, however long ago."""

from collections.abc import Collection, Mapping
from threading import Event
from typing import NamedTuple

from confluent_kafka import KafkaException

from flyball_actuators.ledger.outcome_log import OutcomeLog
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import Settings, raise_if_stopped
from flyball_contracts.records import Outcome

_STEP_S = 0.02


class Ends(NamedTuple):
    """Final live outcome of each decision that has one; ``seen`` are all decisions that have an outcome at all."""

    final: Mapping[str, Outcome]
    seen: Collection[str]


class _Index:
    """Picks the outcomes of the ``wanted`` decisions out of the log; the first final one counts."""

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self.final: dict[str, Outcome] = {}
        self.seen: set[str] = set()

    def add(self, partition: int, outcome: Outcome, at_ms: int) -> None:
        """Add an outcome; a dry run ends no decision."""
        if outcome.decision not in self._wanted or outcome.mode != "live":
            return
        self.seen.add(outcome.decision)
        if outcome.final:
            self.final.setdefault(outcome.decision, outcome)

    def forget(self, partition: int) -> None:
        """Do nothing: what was read stays true."""


def ends_of(wanted: Collection[str], settings: Settings, partitions: int, since_ms: int, stop: Event) -> Ends:
    """Ends of decisions that were sent since ``since_ms`` (ms since the Unix epoch), from all partitions.

    Raises :class:`TransportError` if the outcomes cannot be read, :class:`Stopped` once ``stop`` is set.
    """
    index = _Index(wanted)
    log = OutcomeLog(settings, index)
    try:
        for partition in range(partitions):
            log.follow(partition, since_ms)
        while not all(log.read(partition) for partition in range(partitions)):
            log.drain()
            stop.wait(_STEP_S)
            raise_if_stopped(stop)
    except KafkaException as error:
        raise TransportError(f"outcomes cannot be read: {error.args[0].str()}") from error
    finally:
        log.close()
    return Ends(index.final, index.seen)
