"""Replay a recording through the engine, without a broker."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from flyball_contracts.cloudevents import event_kind, header
from flyball_contracts.codec import Message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.errors import RecordingError
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS, OUTCOMES, TELEMETRY
from flyball_streams.engine import Engine, Incoming
from flyball_streams.engine.stats import LaneStats
from flyball_streams.engine.workload.forecast.history import History
from flyball_streams.recording.format import SOURCES, RecordedMessage, order_of
from flyball_streams.recording.reader import Recording

USED = {*SOURCES, OUTCOMES.name}
"""Input topics of the engine; it produces the others itself."""


class Replayed(NamedTuple):
    """Result of a replay.

    ``decisions`` are the JSON documents, in order; ``kinds`` counts them by type, ``sent`` all messages by topic,
    ``refusals`` the dead letters by reason, ``stats`` the counters of each lane.
    """

    decisions: list[bytes]
    kinds: Counter[str]
    sent: Counter[str]
    refusals: Counter[str]
    stats: dict[str, LaneStats]


def decide(
    path: Path,
    config: WorkerConfig,
    *,
    histories: Mapping[str, History] | None = None,
    stop: threading.Event | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Replayed | None:
    """Run a recording's source topics and outcomes through the engine; ``None`` when ``stop`` came first.

    The engine gets one event-time tick of the recording after the other, so the result depends only on the file, the
    configuration and the ``histories`` from which forecasts start. Raises :class:`RecordingError` when the file cannot
    be read.
    """
    recording = Recording.open(path)
    engine = Engine(config, histories=histories)
    result = Replayed([], Counter(), Counter(), Counter(), {})
    done = 0
    for rows, sent in fed(recording, engine.feed):
        if stop is not None and stop.is_set():
            return None
        for message in sent:
            _note(message, result)
        done += rows
        if progress is not None:
            progress(done, recording.rows)
    return result._replace(stats=engine.stats())


def fed(
    recording: Recording, process: Callable[[Sequence[Incoming]], list[Message]]
) -> Iterator[tuple[int, list[Message]]]:
    """Feed a recording to an engine; yield for each event-time tick the rows read and the messages that were sent.

    ``process`` is one of :class:`Engine`'s methods for a batch of messages.
    Raises :class:`RecordingError` at the end of a recording without telemetry.
    """
    measured = False
    for batch in _ticks(recording):
        measured = measured or any(m.topic == TELEMETRY.name for m in batch)
        used = [m for m in batch if m.topic in USED]
        messages = [Incoming(m.topic, m.partition, m.offset, m.key, m.value, m.headers) for m in used]
        yield len(batch), process(messages)
    if not measured:
        raise RecordingError(f"{recording.path}: it holds no telemetry; record {TELEMETRY.name}")


def _ticks(recording: Recording) -> Iterator[list[RecordedMessage]]:
    messages = (message for batch in recording.messages() for message in batch)
    for _, group in groupby(messages, key=lambda m: order_of(m)[0]):
        yield list(group)


def _note(message: Message, result: Replayed) -> None:
    result.sent[message.topic] += 1
    if message.topic == DECISIONS.name:
        result.decisions.append(message.value)
        result.kinds[event_kind(message.headers) or "?"] += 1
    elif message.topic == DEAD_LETTERS.name:
        result.refusals[header(message.headers, "__connect.errors.exception.message") or "?"] += 1
