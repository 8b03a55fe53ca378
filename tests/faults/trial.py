"""One run from an empty broker to a fleet at rest: with faults or without, and what is left of it."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tests.faults import audit, replay
from tests.faults.audit import Finding
from tests.faults.platform import EndState
from tests.faults.schedule import Fault
from tests.faults.testbed import PARTITIONS, Environment, Setup

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import decode_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Migrate, Outcome, Preempt, Scale
from flyball_contracts.simulated import Operation
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS, DEMAND, INVENTORY, OUTCOMES, PROPOSALS, TELEMETRY
from flyball_streams.recording import Recording
from flyball_streams.recording.format import RecordedMessage
from flyball_streams.recording.recorder import record

DECISION = (Scale, Migrate, Preempt)
FIRST_S = 120.0
QUIET_S = 60.0
"""Event seconds without a decision after which nothing more is to come."""
ALIVE_MESSAGES, ALIVE_EACH = 300, 75
"""What a worker that keeps up may not have committed yet: so many messages, or so many for each tick a second."""
SETTLE_S = 240.0
CONVERGE_S = 90.0
"""Wall seconds in which the end that is expected may come about: decisions wait longer, the more were in vain."""
REASON = "__connect.errors.exception.message"


class Remains(NamedTuple):
    """What a run leaves: its topics, the platform's audit, and how the fleet stands."""

    recording: Path
    worker: WorkerConfig
    operations: list[Operation]
    end: EndState
    until_ns: int
    wall_s: float
    faults: int
    starts: dict[str, int]
    ended: list[str]


def run(
    folder: Path,
    jars: Path | None,
    setup: Setup,
    busy_s: float,
    faults: Sequence[Fault] = (),
    expected: EndState | None = None,
) -> Remains:
    """Run the whole loop for ``busy_s`` event seconds, all ``faults``, and until the fleet is at rest.

    Where an end is ``expected``, it has some time to come about.
    """
    with Environment(folder, jars, setup) as testbed:
        began = time.monotonic()
        try:
            testbed.start()
            testbed.settle("the platform answers", lambda: _now_ns(testbed) > 0, FIRST_S)
            start_ns = _now_ns(testbed)
            testbed.settle("decisions are made", lambda: testbed.decided() > 0, FIRST_S)
            testbed.play(list(faults))
            _pass(testbed, start_ns + round(busy_s * NS_PER_S), busy_s)
            end, operations, until_ns = _rest(testbed, expected)
            testbed.services["fleet"].terminate()
            testbed.settle("the workers have used everything", lambda: testbed.lag() == 0, SETTLE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{testbed.logs()}") from error
        wall_s = time.monotonic() - began
        for service in testbed.services.values():
            service.terminate()
        recording, stop = folder / "topics.parquet", threading.Event()
        stop.set()
        record(testbed.config.kafka, recording, stop=stop)
        starts = {service.name: service.starts for service in testbed.services.values()}
        worker, ended = testbed.config.worker, testbed.ended_by_themselves()
    return Remains(recording, worker, operations, end, until_ns, wall_s, len(faults), starts, ended)


def judge(remains: Remains, undisturbed: EndState | None) -> list[Finding]:
    """All oracles; those about the time after the fleet was at rest leave it out."""
    records: dict[str, list[Any]] = {}
    logs: list[RecordedMessage] = []
    contents: list[tuple[str, bytes]] = []
    reasons: list[str] = []
    for batch in Recording.open(remains.recording).messages():
        for m in batch:
            if m.topic == DEAD_LETTERS.name:
                reasons.append(header(m.headers, REASON) or "?")
                continue
            logs += [m] if m.topic in replay.READ else []
            decoded = decode_message(m.topic, m.value, m.headers)
            records.setdefault(m.topic, []).append(decoded)
            if isinstance(decoded, DECISION):
                contents.append((decoded.id, m.value or b""))
    decisions = [d for d in records.get(DECISIONS.name, []) if d.time_ns <= remains.until_ns]
    known = {d.id for d in decisions}
    outcomes: list[Outcome] = [o for o in records.get(OUTCOMES.name, []) if o.decision in known]
    demand, proposals = records.get(DEMAND.name, []), records.get(PROPOSALS.name, [])
    log = replay.Log(logs)
    demand_again, decided_again = replay.replayed(log, remains.worker, PARTITIONS)
    reference = [d for d in decided_again if d.time_ns <= remains.until_ns]
    findings = [
        audit.one_effect(decisions, remains.operations),
        audit.one_final_outcome(decisions, outcomes),
        audit.one_content(contents),
        audit.same_demand(demand, demand_again),
        *replay.compare_lanes(log, remains.worker, PARTITIONS),
        *audit.as_replayed(decisions, reference),
        audit.no_frame_lost(records.get(TELEMETRY.name, [])),
        audit.nothing_late(demand),
        audit.whole_ticks(demand, proposals),
        audit.no_dead_letters(reasons),
        Finding(audit.GIVEN_UP, sum(remains.starts.values()), remains.ended),
    ]
    if undisturbed is not None:
        findings.append(audit.same_end(remains.end, undisturbed))
    return findings


def _rest(testbed: Environment, expected: EndState | None) -> tuple[EndState, list[Operation], int]:
    """Wait until nothing has been decided for a while and nothing is under way; how everything stands then."""
    seen, since_ns, last = -1, 0, "nothing was seen"

    def at_rest() -> bool:
        nonlocal seen, since_ns, last
        now_ns, decided, lag = _now_ns(testbed), testbed.decided(), testbed.lag()
        if decided != seen or lag > max(ALIVE_MESSAGES, ALIVE_EACH * testbed.speed):
            seen, since_ns = decided, now_ns
        under_way = [o.id for o in testbed.platform.operations() if o.status == "running"]
        quiet_s = (now_ns - since_ns) / NS_PER_S
        last = f"{decided} decisions, quiet for {quiet_s:.0f} s, workers {lag} messages behind, under way: {under_way}"
        return not under_way and quiet_s > QUIET_S

    def settle() -> None:
        try:
            testbed.settle("the fleet is at rest", at_rest, SETTLE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}") from error

    settle()
    nodes = audit.node_names(_inventories(testbed))
    give_up = time.monotonic() + CONVERGE_S
    while expected is not None and testbed.platform.end_state(nodes) != expected and time.monotonic() < give_up:
        time.sleep(1.0)
    settle()
    return testbed.platform.end_state(nodes), testbed.platform.operations(), _now_ns(testbed)


def _pass(testbed: Environment, until_ns: int, busy_s: float) -> None:
    """Wait until the fleet's last burst is over."""
    testbed.settle("the fleet is no longer busy", lambda: _now_ns(testbed) > until_ns, FIRST_S + busy_s / testbed.speed)


def _inventories(testbed: Environment) -> list[Any]:
    from flyball_simulator import Fleet

    start = Fleet(testbed.fleet, 0).messages_at_start()
    return [decode_message(m.topic, m.value, list(m.headers)) for m in start if m.topic == INVENTORY.name]


def _now_ns(testbed: Environment) -> int:
    return testbed.platform.cell().now_ns


def failed(findings: Sequence[Finding]) -> list[str]:
    """Oracles that must hold and do not."""
    return [finding.oracle for finding in findings if finding.broken and finding.oracle not in audit.REPORTED]


def shown(remains: Remains, findings: Sequence[Finding], title: str) -> str:
    """A run for people."""
    starts = ", ".join(f"{name} {count}" for name, count in remains.starts.items())
    head = f"{title}: {remains.faults} faults, {remains.wall_s:.0f} s of wall time; starts: {starts}"
    return f"{head}\n{audit.table(findings)}"


def as_json(remains: Remains, findings: Sequence[Finding]) -> dict[str, Any]:
    """A run for machines."""
    return {
        "faults": remains.faults,
        "wall_s": round(remains.wall_s, 1),
        "starts": remains.starts,
        "failed": failed(findings),
        "oracles": {f.oracle: {"checked": f.checked, "broken": len(f.broken), "first": f.broken[:8]} for f in findings},
        "end": msgspec.to_builtins(remains.end),
    }
