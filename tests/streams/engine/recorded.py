"""A small seeded cell in which everything happens within a minute, as the batches that an engine is fed.

As a program it runs the cell and prints a digest of all that the lanes send:
`python -m tests.streams.engine.recorded`.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from tests.streams.engine.scene import CONFIG, START_NS, Out, incoming

from flyball_contracts.codec import Message, decode_record, record_message
from flyball_contracts.config import Batch, FleetConfig, GridZone, NodePool, Notebooks, Service, Training
from flyball_contracts.config.fleet import Burst, FailingGpu, StragglingGpu
from flyball_contracts.records import AnyDecision, Check, Migrate, Outcome, Preempt, Scale
from flyball_contracts.topics import DECISIONS, TOPICS
from flyball_simulator import Fleet
from flyball_streams.engine import Engine, Incoming, Lane
from flyball_streams.engine.directory import Tombstone
from flyball_streams.engine.node import NodeLane

PARTITIONS = {name: topic.partitions for name, topic in TOPICS.items()}
TICKS = 60
SIZING = msgspec.structs.replace(CONFIG.sizing, reversal_cooldown_s=20.0, cooldown_s=5.0)
WORKER = msgspec.structs.replace(CONFIG, sizing=SIZING, profile_every_ticks=5, decision_interval_s=0.0)
SMALL = FleetConfig(
    cell="small",
    seed=7,
    zones=(GridZone(name="DE", hour_at_start=19.0, carbon_g_per_kwh=380.0, solar_share=0.6),),
    pools=(
        NodePool(name="gpu-a", sku="h100", nodes=2, zone="DE", price_usd_per_hour=30.0),
        NodePool(name="gpu-b", sku="a100", nodes=1, zone="DE", price_usd_per_hour=12.0),
    ),
    trainings=(Training(name="train", pools=("gpu-b",), replicas=5, priority=70),),
    services=(
        Service(
            name="chat", pools=("gpu-a",), replicas=4, max_replicas=12, priority=100,
            bursts=(Burst(from_s=14.0, rise_s=6.0, hold_s=20.0, factor=3.5),),
        ),
    ),
    notebooks=(Notebooks(name="books", pools=("gpu-a",), replicas=4, priority=10),),
    batches=(
        Batch(name="index", pools=("gpu-a",), replicas=4, nominal_replicas=4, duration_s=1e5, priority=20),
        Batch(
            name="fold", pools=("gpu-a",), replicas=3, nominal_replicas=3, duration_s=7_200.0, priority=30,
            deadline_s=80_000.0, gang=True,
        ),
    ),
    failing=(FailingGpu(workload="train", replica=1, from_s=20.0),),
    straggling=(StragglingGpu(workload="train", replica=3, from_s=10.0),),
)  # fmt: skip


class Recorded(NamedTuple):
    """Batches, one for each tick after that of the tables, and what the lanes sent for each."""

    batches: list[list[Incoming]]
    sent: list[list[Message]]


def record(config: FleetConfig, ticks: int, *, refuse_every: int = 5) -> Recorded:
    """Run an engine beside a fleet that obeys it, but refuses each so-manieth decision."""
    fleet, engine = Fleet(config, START_NS), Engine(WORKER)
    batches = [arrived(fleet.messages_at_start())]
    sent = [engine.feed(batches[0])]
    answers: list[Message] = []
    count = 0
    for i in range(ticks):
        batch = arrived([*answers, *fleet.tick(i)], batches)
        batches.append(batch)
        answers = []
        sent.append(engine.feed(batch))
        for message in sent[-1]:
            if message.topic != DECISIONS.name:
                continue
            decision = decode_record(message.topic, message.value, message.headers)
            assert isinstance(decision, Scale | Migrate | Preempt | Check)
            count += 1
            refused = count % refuse_every == 0
            if not refused:
                fleet.apply(decision)
            answers.append(record_message(outcome(decision, refused), "/test"))
    return Recorded(batches, sent)


def outcome(decision: AnyDecision, refused: bool) -> Outcome:
    return Outcome(
        id=f"outcome-{decision.id}", decision=decision.id, type="Scale", target=decision.target, cell=decision.cell,
        workload=decision.workload, time_ns=decision.time_ns, status="refused" if refused else "done", mode="live",
        driver="test",
    )  # fmt: skip


def arrived(messages: Sequence[Message], before: Sequence[Sequence[Incoming]] = ()) -> list[Incoming]:
    """Messages with the offsets that they have on topics where some batches lie already."""
    ends = Counter((m.topic, m.partition) for batch in before for m in batch)
    found: list[Incoming] = []
    for message in (incoming(m, PARTITIONS) for m in messages):
        found.append(message._replace(offset=ends[message.topic, message.partition]))
        ends[message.topic, message.partition] += 1
    return found


def replay(batches: Sequence[Sequence[Incoming]], engine: Engine | None = None) -> list[list[Message]]:
    """What the lanes send, batch by batch."""
    engine = engine or Engine(WORKER)
    return [engine.feed(batch) for batch in batches]


def restored(engine: Engine, tables: Sequence[Incoming] | None = None) -> Engine:
    """Another engine that has what the first one's lanes left behind, and has read the same tables, or these."""
    other = Engine(engine.config, engine.partitions)
    for e in engine.directory.entries() if tables is None else ():
        assert not isinstance(e.row, Tombstone)
        other.directory.apply(e.row, e.partition, e.offset)
    other.feed(tables or [])
    for partition, lane in engine.nodes.items():
        other.nodes[partition] = NodeLane(partition, other.config, other.directory, len(other.workloads))
        other.nodes[partition].restore(lane.snapshot())
    held: list[Lane] = [*engine.workloads, *engine.cells]
    fresh: list[Lane] = [*other.workloads, *other.cells]
    for mine, theirs in zip(fresh, held, strict=True):
        mine.restore(theirs.snapshot())
    return other


def decisions(sent: Sequence[Sequence[Message]]) -> list[bytes]:
    return [m.value for messages in sent for m in messages if m.topic == DECISIONS.name]


def kinds(sent: Sequence[Sequence[Message]]) -> set[str]:
    out = Out([m for messages in sent for m in messages])
    return {kind.__name__ for kind in (Scale, Migrate, Preempt) if out.of(kind)}


def digest(sent: Sequence[Sequence[Message]]) -> str:
    found = hashlib.sha256()
    for messages in sent:
        for message in messages:
            found.update(repr(message).encode())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest(record(SMALL, TICKS).sent))
