"""Pods of a real image-generation service through the engine: what they are taken for."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

from flyball_contracts.codec import decode_record
from flyball_contracts.frame import decode_frame
from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import Profile, WorkloadProfile
from flyball_contracts.topics import INSIGHTS, OUTCOMES, TELEMETRY
from flyball_streams.engine import Engine, Incoming
from flyball_streams.engine.parameters import Parameters
from flyball_streams.importers.alibaba_gentd26 import AlibabaGentd26
from flyball_streams.recording import Recording
from flyball_streams.recording.format import SOURCES, order_of

EVERY_TICKS = 15
USED = {*SOURCES, OUTCOMES.name}


class Pods(NamedTuple):
    """Profiles of single pods, counted by their most probable labels, and the last profile of the whole workload."""

    pages: bool
    kinds: Counter[str]
    families: Counter[str]
    bounds: Counter[str]
    kind_probability: float
    workload: WorkloadProfile | None


def pods(data: Path, *, pages: bool) -> Pods:
    """Import the trace and feed it to the engine, with or without what the replicas say of their requests."""
    config = msgspec.structs.replace(Parameters(), profile_every_ticks=EVERY_TICKS)
    found = Pods(pages, Counter(), Counter(), Counter(), 0.0, None)
    probability = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pods.parquet"
        AlibabaGentd26().convert(data / "alibaba_gentd26", path)
        engine = Engine(config)
        batch: list[Incoming] = []
        at = -1
        for messages in Recording.open(path).messages():
            for m in messages:
                if m.topic not in USED or (not pages and m.topic == TELEMETRY.name and _is_page(m.value)):
                    continue
                if order_of(m)[0] != at:
                    probability, found = _fed(engine, batch, probability, found)
                    batch, at = [], order_of(m)[0]
                batch.append(Incoming(m.topic, m.partition, m.offset, m.key, m.value, m.headers))
        probability, found = _fed(engine, batch, probability, found)
    return found._replace(kind_probability=probability / max(1, found.kinds.total()))


def _fed(engine: Engine, batch: list[Incoming], probability: float, found: Pods) -> tuple[float, Pods]:
    for message in engine.feed(batch):
        record = (
            decode_record(message.topic, message.value, message.headers) if message.topic == INSIGHTS.name else None
        )
        if isinstance(record, Profile) and record.workload and record.kind:
            found.kinds[record.kind] += 1
            found.families[record.family] += 1
            found.bounds[record.bound_by] += 1
            probability += record.kind_probability or 0.0
        elif isinstance(record, WorkloadProfile):
            found = found._replace(workload=record)
    return probability, found


def _is_page(value: bytes | None) -> bool:
    return value is not None and decode_frame(value).schema == WORKLOAD.schema
