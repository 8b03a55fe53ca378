import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, Literal

import msgspec
import pytest
from tests.actuators.loop import (
    PARTITIONS,
    FilePlatform,
    committed,
    config_for,
    ended,
    live,
    of,
    outcomes,
    publish,
    read_all,
    running,
    statuses_of,
    wait_for,
    without_effect,
)
from tests.actuators.platform_server import platform_server
from tests.actuators.rows import observed_row
from tests.actuators.samples import CELL, NOW, S, check, inventory, migrate, preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker

from flyball_actuators.ledger import Ledger
from flyball_actuators.platforms import Handle, Rejected, SimulatedPlatform
from flyball_actuators.service import run_actuator
from flyball_contracts.codec import Message, record_message
from flyball_contracts.config import FleetConfig, PlatformConfig
from flyball_contracts.errors import ConfigError, TransportError
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, AnyDecision, Effect, Outcome, SubjectState
from flyball_contracts.records.commands.outcomes import OutcomeStatus
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS, INVENTORY, OUTCOMES, WORKLOADS
from flyball_simulator import Fleet
from flyball_simulator.service.platform import Platform
from flyball_simulator.service.server import bound, serving

Brokers = Callable[..., EmbeddedBroker]
Unique = Callable[[str], str]


def test_each_decision_is_planned_on_the_real_state_and_committed(bootstrap: str, unique: Unique) -> None:
    group = unique("actuator")
    with running(config_for(bootstrap, group)) as actuator:
        publish(bootstrap, spec("batch"), scale(), preempt(workload="batch"))
        publish(bootstrap, migrate(to_node="n2"), scale("bad", after=99))
        wait_for(ended(bootstrap, 4), "four final outcomes")
        wait_for(lambda: committed(bootstrap, group) == 4, "the commit")
    assert statuses_of(bootstrap, "d1") == ["planned"]
    assert statuses_of(bootstrap, "p1") == ["planned"]
    assert statuses_of(bootstrap, "m1") == ["planned"]
    assert statuses_of(bootstrap, "bad") == ["refused invalid"]
    planned = of(bootstrap, "d1", "planned")
    assert planned == Outcome(
        id=planned.id, decision="d1", type="Scale", target="cell-a/chat", cell="cell-a", workload="chat", time_ns=NOW,
        status="planned", mode="dry_run", driver="inventory", actuator=planned.actuator, answer=planned.answer,
        before=SubjectState(replicas=4, ready=4), expected=SubjectState(replicas=6, ready=6),
    )  # fmt: skip
    assert planned.answer.startswith("would scale cell-a/chat: ")
    assert actuator.report is not None
    assert actuator.report.decisions == 4
    assert actuator.report.statuses == {"planned": 3, "refused": 1}
    assert actuator.report.refusals == {"invalid": 1}
    assert actuator.report.delivered == 5, "each outcome, and the platform's status"
    assert observed_row(bootstrap, "inventory").planned == 3


def test_done_is_when_the_platform_shows_the_effect(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    publish(bootstrap, inventory("priced", workload="chat", replicas=1, price=8.0, devices=8))
    with platform_server(chat=4) as server:
        server.held = True
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            publish(bootstrap, scale())
            wait_for(lambda: statuses_of(bootstrap, "d1") == ["accepted", "running"], "the operation")
            server.now_ns = NOW + 40 * S
            server.finish("d1", replicas=5)
            wait_for(ended(bootstrap, 1), "the final outcome")
    assert server.effects == ["d1"]
    accepted, done = of(bootstrap, "d1", "accepted"), of(bootstrap, "d1", "done")
    assert accepted.before is not None
    assert accepted.before.replicas == 4
    assert accepted.actuator == done.actuator != ""
    assert done.operation == "d1"
    assert done.driver == "simulated"
    assert done.effect_after_s == 40.0
    assert done.time_ns == NOW + 40 * S
    assert done.expected is not None
    assert done.observed is not None
    assert (done.expected.replicas, done.observed.replicas) == (6, 5)
    assert done.detail == (
        "6 replicas were expected, the platform shows 5; 6 ready replicas were expected, the platform shows 5"
    )
    assert done.effect == Effect(gpus=1.0, cost_usd_per_hour=1.0)


def test_a_duplicate_repeats_the_outcome_on_record(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    with platform_server(chat=4) as server:
        with running(live(bootstrap, unique("actuator"), tmp_path, server)) as actuator:
            publish(bootstrap, scale(), scale())
            wait_for(ended(bootstrap, 1), "the final outcome")
            time.sleep(0.01)  # what comes later than the final outcome is a new question
            publish(bootstrap, scale())
            wait_for(lambda: len(outcomes(bootstrap)) == 4, "the answer")
        assert server.log == server.effects == ["d1"]
    assert statuses_of(bootstrap, "d1") == ["accepted", "running", "done", "done"]
    first, again = [m for m in read_all(bootstrap, OUTCOMES.name) if b'"status":"done"' in (m[0] or b"")]
    assert first == again, "the same id and the same bytes"
    assert actuator.report is not None
    assert actuator.report.statuses == {"done": 1}


def test_dry_run_asks_the_platform_and_changes_nothing(bootstrap: str, unique: Unique) -> None:
    with platform_server(chat=4) as server:
        platforms = (PlatformConfig(driver="simulated", url=server.url),)
        with running(config_for(bootstrap, unique("actuator"), platforms=platforms)):
            publish(bootstrap, scale(), migrate(replica="chat-9"), scale("d2", workload="ghost"))
            wait_for(ended(bootstrap, 3), "three final outcomes")
        assert server.operations == {}
        assert server.workloads["chat"].replicas == 4
    assert statuses_of(bootstrap, "d1") == ["planned"]
    assert statuses_of(bootstrap, "m1") == ["refused invalid"]
    planned = of(bootstrap, "d1", "planned")
    assert planned.expected is not None
    assert (planned.driver, planned.expected.replicas) == ("simulated", 6)


def test_slow_operations_stall_nobody_else(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    names = [f"w{i}" for i in range(12)]
    publish(bootstrap, *map(spec, names))
    group = unique("actuator")
    with platform_server(chat=4, **dict.fromkeys(names, 4)) as server:
        server.held = True
        with running(live(bootstrap, group, tmp_path, server)):
            publish(bootstrap, *(scale(f"d-{name}", workload=name) for name in names))
            wait_for(lambda: len(server.operations) == 12, "all operations at once")
            publish(bootstrap, scale("bad", after=99))
            wait_for(lambda: statuses_of(bootstrap, "bad") == ["refused invalid"], "the word on another")
            for name in reversed(names):
                server.finish(f"d-{name}")
            wait_for(lambda: committed(bootstrap, group) == 13, "the commit")
    assert sorted(server.effects) == sorted(f"d-{name}" for name in names)


@pytest.mark.parametrize(
    ("platforms", "code", "remedy"),
    [
        ((), "no_platform", "add one to actuator.platforms"),
        ((PlatformConfig(cells=("other",)),), "no_platform", "add one to actuator.platforms"),
        ((PlatformConfig(),), "unsupported", "name a platform that can in actuator.platforms, or set actuator.mode"),
    ],
)
def test_live_needs_a_platform_that_can_act(
    bootstrap: str, unique: Unique, tmp_path: Path, platforms: tuple[PlatformConfig, ...], code: str, remedy: str
) -> None:
    config = config_for(
        bootstrap, unique("actuator"), mode="live", platforms=platforms, allow=("chat",),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    with running(config):
        publish(bootstrap, scale())
        wait_for(ended(bootstrap, 1), "the final outcome")
    refused = of(bootstrap, "d1", "refused")
    assert refused.code == code
    assert remedy in refused.detail


def test_a_platform_that_is_away_is_asked_again(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    with platform_server(chat=4) as server:
        server.deaf = 1
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            publish(bootstrap, scale())
            wait_for(ended(bootstrap, 1), "the final outcome")
        assert server.log == server.effects == ["d1"], "what was submitted is found, not submitted again"
    assert statuses_of(bootstrap, "d1") == ["accepted", "running", "done"]


def test_no_more_is_read_while_too_much_is_under_way(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flyball_actuators.loop.MOST_WAITING", 4)
    monkeypatch.setattr("flyball_actuators.loop.MOST_HELD", 4)
    monkeypatch.setattr("flyball_actuators.execution.lanes.MOST_UNDER_WAY", 4)
    names, group = [f"w{i}" for i in range(40)], unique("actuator")
    publish(bootstrap, *map(spec, names))
    with platform_server(**dict.fromkeys(names, 4)) as server:
        server.held = True
        with running(live(bootstrap, group, tmp_path, server)):
            for name in names:
                publish(bootstrap, scale(f"d-{name}", workload=name))
            wait_for(lambda: len(server.operations) == 4, "as many as may be under way")
            server.held = False
            wait_for(lambda: committed(bootstrap, group) == 40, "all the same")
    assert sorted(server.effects) == sorted(f"d-{name}" for name in names)
    assert any("no more are read" in record.message for record in caplog.records)
    assert "decisions are read again" in caplog.text


def test_no_partition_stays_paused_when_another_actuator_joins(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flyball_actuators.loop.MOST_WAITING", 2)
    monkeypatch.setattr("flyball_actuators.loop.MOST_HELD", 2)
    names, group = [f"w{i}" for i in range(24)], unique("actuator")
    publish(bootstrap, *map(spec, names))
    with platform_server(**dict.fromkeys(names, 4)) as server:
        server.held = True
        with running(live(bootstrap, group, tmp_path, server)):
            for name in names:
                publish(bootstrap, scale(f"d-{name}", workload=name))
            wait_for(lambda: "no more are read" in caplog.text, "the pause")
            with running(live(bootstrap, group, tmp_path / "other", server)):
                server.held = False
                wait_for(lambda: committed(bootstrap, group) == 24, "all of them")
    assert sorted(server.effects) == sorted(f"d-{name}" for name in names)


def test_no_partition_is_paused_when_it_comes_back(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flyball_actuators.loop.MOST_WAITING", 2)
    monkeypatch.setattr("flyball_actuators.loop.MOST_HELD", 2)
    here = partition_of(CELL.encode(), PARTITIONS[DECISIONS.name])
    other = next(c for c in map(str, range(9)) if partition_of(c.encode(), PARTITIONS[DECISIONS.name]) != here)
    cells, group = {f"w{i}": CELL if i < 12 else other for i in range(24)}, unique("actuator")
    publish(bootstrap, *(spec(name, cell=cell) for name, cell in cells.items()))
    with platform_server(**dict.fromkeys(cells, 4)) as server:  # it runs one of the cells
        server.held = True
        with running(live(bootstrap, group, tmp_path, server)):
            for name, cell in cells.items():
                publish(bootstrap, scale(f"d-{name}", workload=name, cell=cell))
            wait_for(lambda: "no more are read" in caplog.text, "the pause")
            with running(live(bootstrap, group, tmp_path / "other", server)):
                server.held = False
                wait_for(lambda: committed(bootstrap, group) == 24, "all of them")
            for name, cell in cells.items():
                publish(bootstrap, scale(f"e-{name}", workload=name, cell=cell, before=6, after=7))
            wait_for(lambda: committed(bootstrap, group) == 48, "those of both partitions")
    assert len(server.effects) == 24


def test_the_kill_switch_refuses_while_it_is_there(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    switch = tmp_path / "stop"
    driver = FilePlatform(tmp_path / "effects")
    config = config_for(
        bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), kill_switch=str(switch)
    )
    with running(config, driver):
        publish(bootstrap, scale("before"))
        wait_for(ended(bootstrap, 1), "the first final outcome")
        switch.write_text("rack on fire")
        publish(bootstrap, scale("during"))
        wait_for(ended(bootstrap, 2), "the second final outcome")
        switch.unlink()
        publish(bootstrap, scale("after"))
        wait_for(ended(bootstrap, 3), "the third final outcome")
    assert driver.effects() == ["before", "after"]
    (refused,) = [o for o in outcomes(bootstrap) if o.decision == "during"]
    assert refused.code == "kill_switch"
    assert "rack on fire" in refused.detail


def test_a_workload_published_just_before_its_decision_is_known(bootstrap: str, unique: Unique) -> None:
    broken = record_message(spec("broken"), "/test")._replace(value=b"[]")
    tombstone = Message(WORKLOADS.name, b"chat", b"", [])
    with running(config_for(bootstrap, unique("actuator"))) as actuator:
        publish(bootstrap, broken, spec("fresh"), scale("f1", workload="fresh"))
        wait_for(ended(bootstrap, 1), "the first final outcome")
        publish(bootstrap, spec("chat", removed=True))
        decided = 1
        while statuses_of(bootstrap, f"c{decided}") != ["refused unknown_target"]:
            decided += 1  # a removal is read in its time: only what is unknown is looked up before it is refused
            assert decided < 50, "the removal was never seen"
            publish(bootstrap, scale(f"c{decided}"))
            wait_for(ended(bootstrap, decided), "the final outcome of the next decision")
        publish(bootstrap, tombstone._replace(topic=INVENTORY.name, key=b"n2"), migrate(to_node="n9"))
        wait_for(ended(bootstrap, decided + 1), "the last final outcome")
    assert statuses_of(bootstrap, "f1") == ["planned"]
    assert actuator.report is not None
    assert actuator.report.unreadable_world >= 1


def test_the_event_clock_judges_a_recording_by_its_own_time(bootstrap: str, unique: Unique) -> None:
    past = NOW - 86_400 * S  # the wall clock of these tests stands at NOW
    with running(config_for(bootstrap, unique("actuator"), clock="event")):
        publish(bootstrap, scale("then", time_ns=past))
        wait_for(ended(bootstrap, 1), "the first final outcome")
        publish(bootstrap, scale("later", time_ns=past + 60 * S), scale("late", time_ns=past - 120 * S))
        wait_for(ended(bootstrap, 3), "three final outcomes")
    assert statuses_of(bootstrap, "then") == ["planned"]
    assert statuses_of(bootstrap, "later") == ["planned"]
    assert statuses_of(bootstrap, "late") == ["refused expired"]
    assert {o.time_ns for o in outcomes(bootstrap) if o.decision == "later"} == {past + 60 * S}


def test_a_decision_that_is_too_old_is_refused_though_it_says_otherwise(bootstrap: str, unique: Unique) -> None:
    with running(config_for(bootstrap, unique("actuator"))):
        publish(bootstrap, scale("old", time_ns=NOW - 901 * S, ttl_s=10_000), scale("new", ttl_s=10_000))
        wait_for(ended(bootstrap, 2), "two final outcomes")
    assert statuses_of(bootstrap, "old") == ["refused expired"]
    assert statuses_of(bootstrap, "new") == ["planned"]


def test_power_limits_are_those_that_inventories_tell(bootstrap: str, unique: Unique) -> None:
    with running(config_for(bootstrap, unique("actuator"))):
        publish(bootstrap, scale("unknown", power_limit_w=300.0))
        wait_for(ended(bootstrap, 1), "the first final outcome")
        gpus = tuple(msgspec.structs.replace(gpu, power_limit_w=700.0) for gpu in inventory(devices=2).devices)
        publish(bootstrap, msgspec.structs.replace(inventory(replicas=4), devices=gpus))
        publish(bootstrap, spec("fresh"), scale("f", workload="fresh"))  # whoever knows it has read the inventory
        wait_for(ended(bootstrap, 2), "the second final outcome")
        publish(bootstrap, scale("within", power_limit_w=300.0), scale("beyond", power_limit_w=701.0))
        wait_for(ended(bootstrap, 4), "four final outcomes")
    assert statuses_of(bootstrap, "unknown") == ["refused invalid"]
    assert statuses_of(bootstrap, "within") == ["planned"]
    assert statuses_of(bootstrap, "beyond") == ["refused invalid"]


def test_a_platform_that_raises_and_tracks_nothing_is_not_told_again(
    bootstrap: str, unique: Unique, tmp_path: Path
) -> None:
    class Raising(FilePlatform):
        def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
            super().submit(decision, observed, dry_run=dry_run)
            raise TimeoutError("no answer in 10 s")

    driver = Raising(tmp_path / "effects")
    with running(live(bootstrap, unique("actuator"), tmp_path), driver):
        publish(bootstrap, scale(), scale())
        wait_for(ended(bootstrap, 1), "the final outcome")
    assert driver.effects() == ["d1"]
    assert statuses_of(bootstrap, "d1")[:2] == ["accepted", "failed"]
    failed = of(bootstrap, "d1", "failed", 2)
    assert failed.detail.startswith("unknown outcome: TimeoutError: no answer in 10 s")


def test_settings_that_cannot_work_are_refused_at_the_start() -> None:
    platforms = (PlatformConfig(driver="simulated"),)
    with pytest.raises(ConfigError, match=r"actuator\.platforms\[0\]\.url"):
        run_actuator(config_for("127.0.0.1:1", "g", platforms=platforms), stop=Event())


def test_a_wrong_address_is_a_transport_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flyball_actuators.topics_watch.ANSWER_S", 1.0)
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:1: no Kafka broker answers .*kafka\.bootstrap"):
        run_actuator(config_for("127.0.0.1:1", "g"), stop=Event())
    assert "trying again" not in caplog.text, "it does not"


def test_topics_that_cannot_work_are_named(embedded_broker: Brokers) -> None:
    uneven = embedded_broker({**PARTITIONS, OUTCOMES.name: 3}).bootstrap
    with pytest.raises(TransportError, match=r"decisions\.v1 has 2 partitions and flyball\.outcomes\.v1 3; give both"):
        run_actuator(config_for(uneven, "g"), stop=Event())
    fewer = {name: count for name, count in PARTITIONS.items() if name != DEAD_LETTERS.name}
    with pytest.raises(TransportError, match=r"dlq\.v1 does not exist; create the topics with: flyball topics"):
        run_actuator(config_for(embedded_broker(fewer).bootstrap, "g"), stop=Event())


def test_the_loop_shows_its_health_only_while_it_goes_on(
    embedded_broker: Brokers, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = embedded_broker(PARTITIONS)
    monkeypatch.setattr("flyball_actuators.topics_watch.EVERY_S", 0.1)
    monkeypatch.setattr("flyball_actuators.topics_watch.ANSWER_S", 0.5)
    monkeypatch.setattr("flyball_actuators.loop._UNREACHABLE_S", 1.0)
    with running(config_for(broker.bootstrap, unique("actuator"))) as actuator:
        wait_for(lambda: actuator.beats > 2, "beats")
        broker.set_down()

        def still() -> bool:
            before = actuator.beats
            time.sleep(0.5)
            return actuator.beats == before

        wait_for(still, "silence while there is no broker")
        broker.set_up()
        before = actuator.beats
        wait_for(lambda: actuator.beats > before, "beats again")


def test_a_broker_that_did_not_answer_in_time_is_asked_again(
    bootstrap: str, unique: Unique, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flyball_actuators.topics_watch.EVERY_S", 0.1)
    with running(config_for(bootstrap, unique("actuator"))) as actuator:
        wait_for(lambda: actuator.beats > 2, "beats")
        with monkeypatch.context() as impatient:
            impatient.setattr("flyball_actuators.topics_watch._GRACE_S", -60.0)
            wait_for(lambda: "within 5 s; is a broker there?" in caplog.text, "a request that is given up")
        wait_for(lambda: "the topics can be read again" in caplog.text, "an answer")
        publish(bootstrap, spec("batch"), scale())
        wait_for(ended(bootstrap, 1), "a final outcome")
    assert statuses_of(bootstrap, "d1") == ["planned"]


@pytest.mark.parametrize("driver", ["simulated", pytest.param("webhook", marks=pytest.mark.integration)])
def test_the_simulated_fleet_obeys(
    bootstrap: str, unique: Unique, tmp_path: Path, driver: Literal["simulated", "webhook"]
) -> None:
    fleet = Fleet(FleetConfig(), NOW)
    platform = Platform(fleet, 60.0)
    platform.tick(0)
    ticks = iter(range(1, 10_000))
    there = {name: platform.workload(name) for name in platform.cell().workloads}
    service, batch = "chat-api", "asr-batch"
    moved, victim = next(iter(there[service].nodes)), next(iter(there[batch].nodes))  # without a name, the newest goes
    replicas, others = there[service].replicas or 0, there[batch].replicas or 0
    node = there[service].nodes[moved]
    first = next(one for one in fleet.plant.site.nodes if one.name == node).devices[0].id
    placed = msgspec.structs.replace(
        inventory(node, cell="fleet"), allocations=(Allocation(workload=service, replica=moved),)
    )
    publish(bootstrap, spec(service, cell="fleet"), spec(batch, cell="fleet"), placed)
    with bound(platform, "127.0.0.1:0") as server, serving(server) as url:
        config = config_for(
            bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), allow=("*", "node:*"),
            platforms=(PlatformConfig(cells=("fleet",), driver=driver, url=url, poll_s=0.02),),
            kill_switch=str(tmp_path / "stop"),
        )  # fmt: skip

        def obeyed(decisions: int) -> None:
            def ended_now() -> bool:
                for _ in range(10):
                    platform.tick(next(ticks))
                return ended(bootstrap, decisions)()

            wait_for(ended_now, f"the effects of {decisions} decisions")

        less = scale(cell="fleet", workload=service, before=replicas, after=replicas - 1)
        with running(without_effect(config)):
            publish(bootstrap, msgspec.structs.replace(less, id="plan"))
            wait_for(ended(bootstrap, 1), "it is planned")
        assert not platform.operations()
        with running(config):
            publish(
                bootstrap, less, preempt(
                    cell="fleet", workload=batch, before=others, after=others - 1, victims=(victim,)
                ),
            )  # fmt: skip
            obeyed(3)
            publish(bootstrap, migrate(
                cell="fleet", workload=service, replica=moved, from_node=node, from_device=first, time_ns=NOW + 1
            ))  # fmt: skip
            obeyed(4)
            if driver == "simulated":
                publish(bootstrap, check(cell="fleet", node=node, devices=(first,)))
                obeyed(5)
    done = of(bootstrap, "d1", "done")
    assert done.observed is not None
    assert done.observed.replicas == done.observed.ready == replicas - 1
    assert done.effect is not None
    assert done.effect.gpus == -1.0
    assert {(operation.effects, operation.submissions) for operation in platform.operations()} == {(1, 1)}
    assert [o.detail for o in outcomes(bootstrap) if o.status in ("refused", "failed")] == []
    assert platform.workload(batch).nodes.keys() == there[batch].nodes.keys() - {victim}
    assert platform.workload(service).nodes.get(moved, "") != node
    row = observed_row(bootstrap, driver)
    checks = {"Check": (1, 1)} if driver == "simulated" else {}
    assert row.verbs == {"Migrate": (1, 1), "Preempt": (1, 1), "Scale": (1, 1), **checks}
    assert (row.planned, row.victims) == (1, (1, 1))


def test_a_refusal_that_nobody_heard_is_void_once_another_has_claimed_the_decision(
    bootstrap: str, unique: Unique, tmp_path: Path
) -> None:
    decision = scale()

    def outcome_of(status: OutcomeStatus, actuator: str, **more: Any) -> Outcome:
        return Outcome(
            id=f"{status}-{actuator}", decision="d1", type="Scale", target=decision.target, cell=decision.cell,
            workload="chat", time_ns=NOW, status=status, mode="live", driver="simulated", actuator=actuator, **more,
        )  # fmt: skip

    with platform_server(chat=4) as server:
        server.held = True
        config = live(bootstrap, unique("actuator"), tmp_path, server)
        with Ledger(tmp_path / "ledger") as ledger:
            ledger.finish(decision, outcome_of("refused", "ours", code="kill_switch", detail="the switch was on"))
        platform = SimulatedPlatform(server.url, 5.0)
        handle = platform.submit(decision, SubjectState(), dry_run=False)
        assert isinstance(handle, Handle)
        publish(bootstrap, decision, outcome_of("accepted", "theirs"))
        publish(bootstrap, outcome_of("running", "theirs", operation=handle.operation, expected=handle.expected))
        with running(config):
            wait_for(lambda: "GET /v1/operations/d1" in server.calls, "the look at their operation")
            server.finish("d1")
            wait_for(ended(bootstrap, 1), "the final outcome")
    assert statuses_of(bootstrap, "d1") == ["accepted", "running", "done"]
    assert server.log == server.effects == ["d1"]
