"""A worker that stood still for longer than its group waits for it, as on a machine that was suspended."""

import os
import signal
import threading
import time

import pytest
from tests.streams.engine.scene import FIRST, Agent, inventory
from tests.streams.worker.rig import PARTITIONS, Rig

from flyball_contracts.codec import Message, record_message
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import DemandTick
from flyball_contracts.topics import DEAD_LETTERS, DEMAND, TELEMETRY

NODES = tuple(f"node-{i}" for i in range(1, 9))
TICKS = 4000
BEAT_S = 0.25
PER_BEAT = 6
JOINED_S = 1.5
RESUMED_S = 6.0
PAUSED_S = 12.0
"""Longer than the session of a member of the group."""


def sending(rig: Rig, stop: threading.Event, sent: list[int]) -> None:
    """Send frames without a pause, as agents do."""
    agents = [Agent(inventory(node, gpus=4)) for node in NODES]
    for first in range(0, TICKS, PER_BEAT):
        if stop.is_set():
            return
        rig.send(
            Message(TELEMETRY.name, agent.inventory.node.encode(), frame.value or b"", [])
            for i in range(first, first + PER_BEAT)
            for agent in agents
            for frame in agent.frames(i, schemas=[1, 2])
        )
        sent.append(first + PER_BEAT)
        stop.wait(BEAT_S)


@pytest.mark.integration
@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_nothing_is_skipped_after_a_pause(rig: Rig) -> None:
    rig.send(record_message(inventory(node, gpus=4), "/test") for node in NODES)
    stop, sent = threading.Event(), [0]
    sender = threading.Thread(target=sending, args=(rig, stop, sent))
    sender.start()
    try:
        worker = rig.worker()  # it has a backlog, and its first steps are slow
        time.sleep(JOINED_S)
        os.kill(worker.process.pid, signal.SIGSTOP)
        time.sleep(PAUSED_S)
        os.kill(worker.process.pid, signal.SIGCONT)
        time.sleep(RESUMED_S)
    finally:
        stop.set()
        sender.join()
    rig.wait_drained(worker)
    lanes = {f"node/{partition_of(node.encode(), PARTITIONS[TELEMETRY.name])}" for node in NODES}
    reported = [d for d in rig.records(DEMAND.name) if isinstance(d, DemandTick)]
    whole = {lane: set(range(FIRST, FIRST + sent[-1])) for lane in lanes}
    assert {lane: {d.tick.index for d in reported if d.source == lane} for lane in lanes} == whole
    assert sum(d.tick.late + len(d.tick.missing) for d in reported) == 0
    assert not any(rig.ends(DEAD_LETTERS.name).values())
