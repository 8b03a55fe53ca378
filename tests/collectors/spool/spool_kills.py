"""A writer that is killed at random moments, and files damaged at random places in between."""

import multiprocessing
import os
import random
import select
import shutil
import struct
import time
from pathlib import Path
from typing import NamedTuple

from tests.collectors.spool.spool_writer import NOTE, SEGMENT_BYTES, payload, write

from flyball_collectors.spool import Spool

# Writers are forked from a process of their own: this one may have threads (JAX), which a fork does not survive.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["__main__", "tests.collectors.spool.spool_writer"])


UNBOUNDED, SMALL = 1 << 30, 3 << 20  # budgets; of the first nothing is ever dropped


class Survived(NamedTuple):
    """What a run of kills came to: ``lost`` records were given up by the spool and counted by it.

    ``torn`` of them were being written at the moment of a kill.
    """

    kills: int
    damaged: int
    appended: int
    lost: int
    torn: int


class Reported(NamedTuple):
    """The last number that the writer reported as appended, and the last that it would acknowledge."""

    appended: int
    acknowledged: int


def run_and_kill(folder: Path, budget: int, number: int, chance: random.Random) -> Reported:
    """Start a writer, kill it after a random time, and return what it reported."""
    receiving, sending = SERVER.Pipe(duplex=False)
    seed, wait_s = chance.randrange(1 << 30), chance.random() ** 2 * 0.05
    process = SERVER.Process(target=write, args=(folder, budget, number, sending, seed), daemon=True)
    process.start()
    sending.close()
    reading = receiving.fileno()
    notes = b""
    give_up = time.monotonic() + 30
    kill_at: float | None = None
    while kill_at is None or time.monotonic() < kill_at:
        ready, _, _ = select.select([reading], [], [], 0.001)
        if ready:
            part = os.read(reading, 65_536)
            assert part, "the writer ended by itself"
            notes += part
            kill_at = kill_at or time.monotonic() + wait_s
        assert time.monotonic() < give_up
    process.kill()
    process.join()
    process.close()
    while part := os.read(reading, 65_536):
        notes += part
    receiving.close()
    reported = {b"a": number - 1, b"d": 0}
    reported.update(NOTE.iter_unpack(notes))
    return Reported(reported[b"a"], reported[b"d"])


def damage(folder: Path, chance: random.Random) -> int:
    """Perhaps flip a byte, insert some, or cut a file; return the most records that this can cost."""
    files = [path for path in folder.glob("*.spool") if path.stat().st_size]
    kind = chance.choice(["none", "none", "flip", "insert", "cut"])
    if kind == "none" or not files:
        return 0
    file = chance.choice(files)
    raw = bytearray(file.read_bytes())
    at = chance.randrange(len(raw))
    if kind == "flip":
        raw[at] ^= chance.randrange(1, 256)
    elif kind == "insert":
        raw[at:at] = chance.randbytes(chance.randrange(1, 100))
    elif file == max(files):
        return 0  # who cuts the newest file cuts what only its reader could miss
    else:
        del raw[at:]
    file.write_bytes(raw)
    return 1 if kind != "cut" else 1_000_000


def look(folder: Path, budget: int) -> tuple[list[int], int, int]:
    """Numbers of the records that come out, records lost, and those of them torn; the content is checked."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    spool = Spool(copy, budget, segment_bytes=SEGMENT_BYTES, sync_s=0.0)
    numbers: list[int] = []
    while records := spool.peek(100):
        for record in records:
            (number,) = struct.unpack_from("<Q", record.payload)
            assert record.payload == payload(number)
            numbers.append(number)
        spool.ack(records[-1].id)
    stats = spool.stats
    spool.close()
    shutil.rmtree(copy)
    assert stats.dropped == 0
    return numbers, stats.corrupt + stats.torn, stats.torn


def torture(folder: Path, budget: int, kills: int, seed: int = 20_251) -> Survived:
    """Kill a writer again and again, mostly with damage to its files, too; fail on any loss that is not counted."""
    chance = random.Random(seed)
    number, acknowledged = 1, 0
    damaged = given_up = cut = 0
    for _ in range(kills):
        reported = run_and_kill(folder, budget, number, chance)
        acknowledged = max(acknowledged, reported.acknowledged)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= budget
        before, lost, torn = look(folder, budget)
        # The kill alone: nothing that was appended is missing; the one that was being written may be there or torn.
        assert lost == torn <= 1
        cut += torn
        assert before == list(range(before[0], before[0] + len(before))) if before else True
        newest = before[-1] if before else acknowledged
        assert newest - reported.appended in (0, 1)
        if budget == UNBOUNDED:
            assert not before or before[0] <= acknowledged + 1

        most = damage(folder, chance)
        if most:
            damaged += 1
            after, lost, _ = look(folder, budget)
            missing = sorted(set(before) - set(after))
            assert set(after) <= set(before)
            assert after == sorted(after)
            assert len(missing) <= min(most, lost)
            assert lost <= len(missing) + torn + (most == 1)  # damage to what was acknowledged costs nothing
            given_up += len(missing)
            # The writer goes on from sound files, so that each round reports its own damage only.
            spool = Spool(folder, budget, segment_bytes=SEGMENT_BYTES)
            spool.ack(1 << 62)
            spool.close()
            acknowledged = newest
        number = newest + 1
    return Survived(kills, damaged, number - 1, given_up + cut, cut)
