"""Between the guard's word and the platform a disk or a queue may take long: it is looked once more."""

import random
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.actuators.in_memory.site import Site, started, still_time
from tests.actuators.loop import (
    FilePlatform,
    config_for,
    ended,
    live,
    of,
    publish,
    running,
    statuses_of,
    wait_for,
)
from tests.actuators.samples import CELL, NOW, S, inventory, preempt, scale, spec, world

from flyball_actuators.execution.judge import Judge
from flyball_actuators.guard import Grant, World
from flyball_actuators.ledger import Ledger
from flyball_actuators.parameters import ActuatorParameters, BlastRadiusParameters, RateParameters
from flyball_actuators.platforms import Handle, Rejected
from flyball_actuators.session import Session
from flyball_contracts.codec import Message, record_message
from flyball_contracts.config import GuardPolicy, KafkaConfig
from flyball_contracts.config.policies import Quota
from flyball_contracts.records import Allocation, AnyDecision, Approval, Outcome, Record, Resources, Scale, SubjectState

replace = msgspec.structs.replace
Unique = Callable[[str], str]


def slow_disk(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[str], object]) -> None:
    """While the ledger syncs what is about to be sent, something else happens."""
    send = Ledger.send

    def sync(self: Ledger, decision: AnyDecision) -> None:
        send(self, decision)
        meanwhile(decision.id)

    monkeypatch.setattr(Ledger, "send", sync)


def test_a_kill_switch_that_comes_while_the_disk_syncs_stops_it(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch, driver = tmp_path / "stop", FilePlatform(tmp_path / "effects")
    slow_disk(monkeypatch, lambda _: switch.write_text("rack on fire"))
    ledger = tmp_path / "ledger"
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(ledger), kill_switch=str(switch))
    with running(config, driver):
        publish(bootstrap, scale())
        wait_for(ended(bootstrap, 1), "the final outcome")
    assert driver.effects() == []
    assert statuses_of(bootstrap, "d1") == ["accepted", "refused kill_switch"]
    assert "rack on fire" in of(bootstrap, "d1", "refused").detail
    with Ledger(ledger) as again:
        entry = again.get("d1")
        assert entry is not None
        assert entry.step == "refused", "it was not sent, and nothing says that it might have been"
        assert list(again.grants()) == []


def test_a_decision_that_expires_while_the_disk_syncs_is_not_told(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns, driver = [NOW], FilePlatform(tmp_path / "effects")

    def pass_time(_: str) -> None:
        now_ns[0] = NOW + 120 * S

    slow_disk(monkeypatch, pass_time)
    with running(live(bootstrap, unique("actuator"), tmp_path), driver, lambda: now_ns[0]):
        publish(bootstrap, scale())
        wait_for(ended(bootstrap, 1), "the final outcome")
    assert driver.effects() == []
    assert statuses_of(bootstrap, "d1") == ["accepted", "refused expired"]


def test_a_kill_switch_that_comes_while_calls_wait_for_a_thread_stops_them(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FilePlatform):
        def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
            handle = super().submit(decision, observed, dry_run=dry_run)
            assert free.wait(30.0)
            return handle

    free, sent = Event(), list[str]()
    switch, driver = tmp_path / "stop", Slow(tmp_path / "effects")
    slow_disk(monkeypatch, sent.append)
    monkeypatch.setattr("flyball_actuators.execution.carry_out.CALLS_AT_ONCE", 1)
    publish(bootstrap, spec("other"), scale("first"), scale("second", workload="other"))
    config = config_for(
        bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), kill_switch=str(switch)
    )
    with running(config, driver):
        wait_for(lambda: len(sent) == 2, "a call under way and one that waits")
        switch.write_text("")
        free.set()
        wait_for(ended(bootstrap, 2), "two final outcomes")
    (submitted,) = driver.effects()
    (kept,) = {"first", "second"} - {submitted}
    assert statuses_of(bootstrap, kept) == ["accepted", "refused kill_switch"]


def test_what_changes_while_the_disk_syncs_is_judged_by_all_checks_again(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An approval that is withdrawn, a tenant who comes, a quota that fills, and replicas that are gone."""

    class Batches(FilePlatform):
        def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
            if isinstance(decision, Scale):
                batches[decision.id] = decision.batch_size
            return super().submit(decision, observed, dry_run=dry_run)

    def workload(name: str, tenant: str, gpus: float = 1.0) -> Record:
        return replace(spec(name), tenant=tenant, gpus_per_replica=gpus)

    def meanwhile(decision: str) -> None:
        news, is_seen = changes[decision]
        publish(bootstrap, news)
        wait_for(lambda: is_seen(read()), f"what changes during {decision}")

    def read() -> World:
        sessions[0].refresh()
        assert not sessions[0].stops  # to read the orders
        return sessions[0].world("")

    def start(self: Session) -> None:
        sessions.append(self)
        began(self)

    sessions, batches, began = list[Session](), dict[str, int | None](), Session.start
    monkeypatch.setattr(Session, "start", start)
    slow_disk(monkeypatch, meanwhile)
    approval = Approval(decision=scale("asks", workload="asked"), time_ns=NOW, until_ns=NOW + 600 * S, by="an engineer")
    tombstone: Any = None
    withdrawn = record_message(approval, "/test")._replace(value=tombstone)
    beside = Allocation(workload="theirs", replica="theirs-0", devices=(0,))
    shared = replace(inventory("n3", devices=1), allocations=(beside,))
    full = inventory("n4", workload="sibling", replicas=9)
    changes: dict[str, tuple[Record | Message, Callable[[World], bool]]] = {
        "asks": (withdrawn, lambda world: not world.approvals),
        "mixes": (shared, lambda world: "n3" in world.gpus),
        "fills": (full, lambda world: world.running(CELL, "sibling") == 9),
        "resizes": (inventory("n4"), lambda world: not world.running(CELL, "sibling")),
        "stops": (inventory("n1"), lambda world: not world.running(CELL, "chat")),
    }
    publish(
        bootstrap, workload("asked", "a"), workload("part", "parts", 0.5), workload("theirs", "others", 0.5),
        workload("grows", "quota"), workload("sibling", "quota"), workload("stopped", "a"),
        inventory("n4", workload="sibling", replicas=2), approval,
    )  # fmt: skip
    config = config_for(
        bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"),
        blast_radius=BlastRadiusParameters(share=0.5, replicas=1),
        policies=(
            GuardPolicy(name="ask", workloads=("asked",), approval=True),
            GuardPolicy(name="most", tenants=("quota",), quota=Quota(replicas=10)),
        ),
    )  # fmt: skip
    decisions = (
        scale("asks", workload="asked"),
        scale("mixes", workload="part"),
        scale("fills", workload="grows"),
        scale("resizes", before=4, after=4, resources=Resources(cpu=2.0)),
        preempt("stops", workload="stopped", before=2, after=0, until_s=600),
    )
    driver = Batches(tmp_path / "effects")
    with running(config, driver):
        for number, decision in enumerate(decisions, 1):
            publish(bootstrap, decision)
            wait_for(ended(bootstrap, number), f"the final outcome of {decision.id}")
    assert {name: statuses_of(bootstrap, name)[1:] for name in ("asks", "mixes", "fills", "stops")} == {
        "asks": ["refused approval"],
        "mixes": ["refused tenant_mixed"],
        "fills": ["refused quota"],
        "stops": ["refused blast_radius"],
    }
    assert driver.effects() == ["resizes"]
    assert batches == {"resizes": 2}, "what its cell may lose by then, and its first grant does not count twice"


def test_the_last_look_reads_what_other_actuators_did(bootstrap: str, unique: Unique) -> None:
    theirs = Outcome(
        id="o1", decision="theirs", type="Scale", target=f"{CELL}/chat", cell=CELL, workload="chat", time_ns=NOW,
        status="running", mode="live", driver="test", actuator="another", before=SubjectState(replicas=6),
        expected=SubjectState(replicas=4),
    )  # fmt: skip
    session = Session(KafkaConfig(bootstrap=bootstrap), unique("actuator"), "me", Event())
    try:
        session.start()
        session.follow_all(2, 0)
        publish(bootstrap, theirs)

        def grants() -> list[str]:
            session.read_world()
            return [grant.decision for grant in session.all.index.since(CELL, 0)]

        wait_for(lambda: grants() == ["theirs"], "what another actuator did")
    finally:
        session.close()
    session.read_world()  # a call that still waits for its thread looks once more


def test_a_call_that_waited_for_a_thread_counts_from_when_it_is_made(tmp_path: Path) -> None:
    config = config_for(
        "", "g", mode="live", per_cell=RateParameters(actions=1, window_s=10.0), ledger=str(tmp_path / "ledger")
    )
    site = Site(
        tmp_path, config, [spec(), spec("other")], allowed=("chat", "other"), actuators=("a",), partitions=1,
        chance=random.Random(1),
    )  # fmt: skip
    (process,) = site.processes
    with still_time(site):
        started(process)
        site.send(scale("first"))
        while not site.broker.all_outcomes():
            process.step()
        process.held = True
        for _ in range(22):
            process.step()
            site.time.now_s += 0.5
        site.send(scale("second", workload="other", time_ns=site.now_ns))
        process.held = False
        site.settle()
        process.kill()
    assert [effect.decision for effect in site.account.effects] == ["first"]
    (second,) = site.final_outcomes()["second"]
    assert (second.status, second.code) == ("refused", "rate")


@pytest.mark.parametrize(("said", "expected"), [(None, ""), (3, "blast_radius")])
def test_after_a_restart_what_was_granted_right_before_the_call_counts(
    said: int | None, expected: str, tmp_path: Path
) -> None:
    resized = scale("d1", before=4, after=4, resources=Resources(cpu=2.0))
    first = Grant(
        cell=CELL, target="cell-a/chat", subject="cell-a/chat#", decided_ns=NOW, at_ns=NOW, taken=1, decision="d1",
        workload="chat", type="Scale", urgency="normal",
    )  # fmt: skip
    log = [] if said is None else [replace(first, taken=said)]  # as the outcome `running` has it

    def grants(_: int) -> list[Grant]:
        return log

    def since(_: str, __: int) -> list[Grant]:
        return []

    def shown(stop: str) -> World:
        return world(running={"chat": 4}, stop=stop)

    outcomes = SimpleNamespace(index=SimpleNamespace(grants=grants, since=since))
    session = SimpleNamespace(log=outcomes, all=outcomes, stops=(), world=shown)
    config = ActuatorParameters(
        mode="live", clock="wall", allow=("*",), blast_radius=BlastRadiusParameters(share=0.0, replicas=3)
    )
    with Ledger(tmp_path / "ledger") as before:
        before.grant(resized, first)
        before.send(resized)
    with Ledger(tmp_path / "ledger") as ledger:
        judge = Judge(config, ledger, cast("Session", session), lambda: NOW, lambda _: False)
        judge.restore(0)
        verdict, _ = judge.authorise(preempt("d2", before=4, after=3), SubjectState(replicas=4, ready=4), ())
    assert verdict.code == expected


def test_a_node_that_shows_nothing_of_late_lifts_no_quota(tmp_path: Path) -> None:
    shown, now_ns = world(specs=[spec("embed")], running={"chat": 2, "embed": 8}), [NOW]

    def since(_: str, __: int) -> list[Grant]:
        return []

    def now_shown(_: str) -> World:
        return shown

    outcomes = SimpleNamespace(index=SimpleNamespace(since=since))
    session = SimpleNamespace(log=outcomes, all=outcomes, stops=(), world=now_shown)
    policy = GuardPolicy(name="fair", quota=Quota(replicas=10))
    config = ActuatorParameters(
        mode="live",
        clock="wall",
        allow=("*",),
        policies=(policy,),
        blast_radius=BlastRadiusParameters(share=1.0, replicas=99, most=99),
    )

    def judged(after_s: int, id_: str, workload: str = "chat", before: int = 2, after: int = 9) -> str:
        now_ns[0] = NOW + after_s * S
        decision = scale(id_, workload=workload, before=before, after=after, time_ns=now_ns[0])
        return judge.authorise(decision, SubjectState(replicas=before, ready=before), ())[0].code

    with Ledger(tmp_path / "ledger") as ledger:
        judge = Judge(config, ledger, cast("Session", session), lambda: now_ns[0], lambda _: False)
        assert judged(0, "d1") == "quota"
        shown = world(specs=[spec("embed")], running={"chat": 2})
        assert judged(10, "d2") == judged(609, "d3") == "quota", "an agent left its replicas out"
        assert judged(611, "d4") == "", "they are gone"
        shown = world(specs=[spec("embed")], running={"chat": 9, "embed": 1})
        assert judged(700, "d5", before=9, after=2) == ""
        shown = world(specs=[spec("embed")], running={"chat": 2, "embed": 1})
        assert judged(710, "d6", "embed", before=1, after=8) == "", "a decision took them"
