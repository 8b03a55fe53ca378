from pathlib import Path

import pytest

from flyball_contracts.config import FleetConfig
from flyball_contracts.partitioner import partition_of
from flyball_contracts.topics import TOPICS
from flyball_simulator import Fleet
from flyball_streams.recording.format import RecordedMessage, event_time_ns
from flyball_streams.recording.writer import RecordingWriter

START_NS = 1_750_000_000_000_000_000
TICKS = 45


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a fleet sends in 45 s; every kind of decision follows from it."""
    path = tmp_path_factory.mktemp("recording") / "fleet.parquet"
    fleet = Fleet(FleetConfig(), START_NS)
    messages = [*fleet.messages_at_start(), *(m for tick in range(TICKS) for m in fleet.tick(tick))]
    with RecordingWriter(path, made_by="tests") as writer:
        for offset, m in enumerate(messages):
            time_ns, _ = event_time_ns(m.topic, m.value, m.headers, 0)
            place = partition_of(m.key, TOPICS[m.topic].partitions)
            writer.append(RecordedMessage(m.topic, place, offset, time_ns, 0, m.key, m.value, list(m.headers)))
    return path
