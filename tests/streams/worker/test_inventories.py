"""Frames and the inventories that they name come on two ways: no frame is judged by an inventory that is behind."""

import time

from tests.streams.engine.scene import FIRST, START_NS, Agent, inventory
from tests.streams.worker.rig import Rig

from flyball_contracts.codec import Message, record_message
from flyball_contracts.records import DemandTick
from flyball_contracts.topics import DEAD_LETTERS, DEMAND, TELEMETRY

ROUNDS = 12
PAUSE_S = 0.35
"""So that a round is a fetch of its own."""
TICKS = 40
"""Of a round, all in one fetch: many times the lateness, as in a replay that runs fast or after a pause."""


def frames(epoch: int) -> list[Message]:
    agent = Agent(inventory("node-1", gpus=epoch, epoch=epoch))
    first = (epoch - 1) * TICKS
    taken = [f for i in range(first, first + TICKS) for f in agent.frames(i, schemas=[1], seq=i)]
    return [Message(TELEMETRY.name, b"node-1", f.value or b"", []) for f in taken]


def test_frames_sent_right_after_their_inventory_are_used(rig: Rig) -> None:
    worker = rig.worker()
    for epoch in range(1, ROUNDS + 1):
        rig.send([record_message(inventory("node-1", gpus=epoch, epoch=epoch, time_ns=START_NS + epoch), "/test")])
        rig.send(frames(epoch))
        time.sleep(PAUSE_S)
    rig.wait_drained(worker)
    ticks = {d.tick.index: d.tick for d in rig.records(DEMAND.name) if isinstance(d, DemandTick)}
    assert rig.ends(DEAD_LETTERS.name) == {place: 0 for place in rig.ends(DEAD_LETTERS.name)}
    assert sorted(ticks) == list(range(FIRST, FIRST + ROUNDS * TICKS))
    assert sum(tick.late for tick in ticks.values()) == 0
