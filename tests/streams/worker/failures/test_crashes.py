"""Workers that are killed, that join and that leave: the decisions are those of a run without trouble."""

import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from tests.streams.worker.rig import START_NS, Rig, Simulated, ids, wait_until

from flyball_contracts.config import FleetConfig
from flyball_contracts.records import Forecast
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS, INSIGHTS, STATE, TELEMETRY
from flyball_simulator.service.run import run_fleet

TICKS = 60
SPEED = 6.0


@contextmanager
def fleet(rig: Rig) -> Generator[threading.Thread]:
    """The fleet sends in the background; the same messages as `Simulated`."""
    stop = threading.Event()
    arguments: dict[str, Any] = {"stop": stop, "start_ns": START_NS, "speed": SPEED, "ticks": TICKS}
    thread = threading.Thread(target=run_fleet, args=(FleetConfig(), rig.config.kafka), kwargs=arguments)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


def differences(seen: Sequence[Any], expected: Sequence[Any]) -> list[str]:
    """How what was said differs from what should have been, oldest first; the same said twice is no difference."""
    found: list[tuple[int, str]] = []
    by_id = {r.id: r for r in expected}
    for record in seen:
        other = by_id.get(record.id)
        if other is None:
            found.append((record.time_ns, f"made up: {record}"))
        elif record != other:
            found.append((record.time_ns, f"{record}\n  instead of\n  {other}"))
    found += [(r.time_ns, f"lost: {r}") for i, r in by_id.items() if i not in ids(seen)]
    return [text for _, text in sorted(found)]


def essence(decision: Any) -> Any:
    """A decision without what explains it: events and telemetry have no common order, so an event may come later."""
    return msgspec.structs.replace(decision, reason="", evidence=())


def check_as_if_nothing_happened(rig: Rig, simulated: Simulated) -> None:
    offline = simulated.offline(rig.config.worker)
    forecasts, expected = (
        [r for r in records if isinstance(r, Forecast)]
        for records in (rig.records(INSIGHTS.name), offline[INSIGHTS.name])
    )
    wrong = differences(forecasts, expected)  # levels, calibration and trust went on where they were
    assert not wrong, f"{len(wrong)} forecasts differ, the first: {wrong[0]}"
    wrong = differences(*(list(map(essence, d)) for d in (rig.decisions(), offline[DECISIONS.name])))
    assert not wrong, f"{len(wrong)} decisions differ, the first: {wrong[0]}"
    assert not rig.read(DEAD_LETTERS.name)


def some_telemetry_used(rig: Rig, share: float) -> bool:
    used, sent = rig.committed(TELEMETRY.name), rig.ends(TELEMETRY.name)
    whole = sum(sent.values()) > share * TICKS * 72
    return whole and sum(used.values()) > 0 and bool(rig.decisions())


def test_killed_in_mid_stream(rig: Rig) -> None:
    simulated = Simulated(TICKS)
    rig.send(simulated.start)
    first = rig.worker()
    with fleet(rig) as source:
        wait_until(lambda: some_telemetry_used(rig, 0.4), "decisions are made")
        first.kill()
        second = rig.worker("--log-level", "INFO")
        source.join()
        rig.wait_drained(second)
    states = [s for s in rig.records(STATE.name) if s.lane.endswith(":node")]
    assert {s.partition for s in states} == {0, 1, 2, 3}
    assert "node/0 goes on from its snapshot" in second.text()
    assert "starting fresh" not in second.text()
    check_as_if_nothing_happened(rig, simulated)
    assert second.terminate() == 0


def test_stopped_in_mid_stream(embedded_rig: Callable[..., Rig]) -> None:
    """What happened meanwhile counts at its ticks, whose frames come in the same fetch."""
    rig, simulated = embedded_rig(), Simulated(TICKS)
    rig.send(simulated.start)
    worker = rig.worker()

    def sent(ticks: int) -> bool:
        return sum(rig.ends(TELEMETRY.name).values()) > ticks * len(simulated.ticks[0])

    with fleet(rig) as source:
        wait_until(lambda: sent(8), "the worker has work")
        worker.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: sent(32), "a replica was slow, and its GPU throttled")
        worker.process.send_signal(signal.SIGCONT)
        source.join()
        rig.wait_drained(worker)
    check_as_if_nothing_happened(rig, simulated)
    assert worker.terminate() == 0


def test_one_joins_and_the_other_leaves(rig: Rig) -> None:
    simulated = Simulated(TICKS)
    rig.send(simulated.start)
    first = rig.worker()
    with fleet(rig) as source:
        wait_until(lambda: some_telemetry_used(rig, 0.2), "decisions are made")
        second = rig.worker("--log-level", "INFO")
        wait_until(lambda: some_telemetry_used(rig, 0.5), "both have worked")
        assert first.terminate() == 0
        source.join()
        rig.wait_drained(second)
    assert "goes on from its snapshot" in second.text()
    check_as_if_nothing_happened(rig, simulated)
    assert second.terminate() == 0
