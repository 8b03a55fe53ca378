"""A whole worker on a broker decides what the pure engine decides on the same messages."""

import threading
from collections.abc import Callable

from tests.streams.worker.rig import START_NS, Rig, Simulated, ids

from flyball_contracts.config import FleetConfig
from flyball_contracts.records import DemandTick, Forecast, Migrate, Profile
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS, DEMAND, INSIGHTS
from flyball_simulator.service.run import run_fleet

TICKS = 50
SPEED = 10.0


def test_decisions_are_those_of_the_offline_engine(embedded_rig: Callable[..., Rig]) -> None:
    rig = embedded_rig()
    simulated = Simulated(TICKS)
    rig.send(simulated.start)  # so that the tables are whole before the first tick, as they are offline
    worker = rig.worker()
    report = run_fleet(
        FleetConfig(), rig.config.kafka, stop=threading.Event(), start_ns=START_NS, speed=SPEED, ticks=TICKS
    )
    assert report.failed == 0
    rig.wait_drained(worker)
    expected = simulated.offline(rig.config.worker)[DECISIONS.name]
    decided = rig.decisions()
    assert {type(d).__name__ for d in decided} == {"Scale", "Migrate", "Preempt"}
    assert ids(decided) == ids(expected)
    assert len(decided) == len(ids(decided))
    by_id = {d.id: d for d in decided}
    assert all(by_id[d.id] == d for d in expected if not isinstance(d, Migrate))  # its event may come a tick later
    demands = [d for r in rig.records(DEMAND.name) if isinstance(r, DemandTick) for d in r.demands]
    assert {d.workload for d in demands} >= {"chat-api", "llm-pretrain", "synth-data"}
    insights = rig.records(INSIGHTS.name)
    assert any(isinstance(r, Forecast) and r.subject == "chat-api" for r in insights)
    assert any(isinstance(r, Profile) for r in insights)
    assert not rig.read(DEAD_LETTERS.name)
    assert worker.terminate() == 0
    assert "\x1b" not in worker.text()
    assert "Traceback" not in worker.text()
