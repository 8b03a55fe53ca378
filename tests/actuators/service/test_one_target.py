"""Several decisions about one target: which goes first, which takes the place of which, and what is refused."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
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
from tests.actuators.platform_server import platform_server
from tests.actuators.samples import NOW, S, migrate, scale, spec

from flyball_actuators.parameters import BlastRadiusParameters, RateParameters
from flyball_actuators.platforms import Handle, Rejected
from flyball_contracts.config import GuardPolicy
from flyball_contracts.config.policies import Quota
from flyball_contracts.records import AnyDecision, Resources, Scale, SubjectState

Unique = Callable[[str], str]


def test_one_operation_a_target(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    with platform_server(chat=4) as server:
        server.held = True
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            publish(bootstrap, migrate(), scale(), migrate("m2", replica="chat-1", from_device=""))
            wait_for(lambda: list(server.operations) == ["m1"], "the first")
            wait_for(lambda: statuses_of(bootstrap, "m1") == ["accepted", "running"], "its word")
            server.finish("m1")
            wait_for(lambda: list(server.operations) == ["m1", "d1"], "the second")
            server.finish("d1")
            wait_for(lambda: list(server.operations) == ["m1", "d1", "m2"], "the third")
            server.finish("m2")
            wait_for(ended(bootstrap, 3), "the final outcomes")
    assert server.effects == ["m1", "d1", "m2"]


def test_a_newer_decision_supersedes_the_one_under_way(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    with platform_server(chat=4) as server:
        server.held = True
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            publish(bootstrap, scale())
            wait_for(lambda: "running" in statuses_of(bootstrap, "d1"), "the first operation")
            publish(bootstrap, scale("d2", after=8, time_ns=NOW + S))
            wait_for(lambda: "superseded stale" in statuses_of(bootstrap, "d1"), "its end")
            server.finish("d2")
            wait_for(ended(bootstrap, 2), "the final outcomes")
    assert server.effects == ["d2"]
    assert statuses_of(bootstrap, "d2") == ["accepted", "running", "done"]


def test_a_newer_decision_stands_for_the_one_that_it_overtook(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    publish(bootstrap, scale(), scale("d2", before=6, after=9, time_ns=NOW + S))
    with platform_server(chat=4) as server:
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            wait_for(ended(bootstrap, 2), "the final outcomes")
        assert server.effects == ["d2"]
        assert server.workloads["chat"].replicas == 9
    assert statuses_of(bootstrap, "d1") == ["superseded stale"]


def test_what_waits_is_asked_about_once_more(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    switch = tmp_path / "stop"
    with platform_server(chat=4) as server:
        server.held = True
        config = live(bootstrap, unique("actuator"), tmp_path, server)
        actuator = msgspec.structs.replace(config.actuator, kill_switch=str(switch))
        with running(msgspec.structs.replace(config, actuator=actuator)):
            publish(bootstrap, migrate(), scale("old"), scale("new", after=8, time_ns=NOW + S))
            wait_for(lambda: "running" in statuses_of(bootstrap, "m1"), "the first operation")
            switch.write_text("rack on fire")
            server.finish("m1")
            wait_for(ended(bootstrap, 3), "the final outcomes")
    assert server.effects == ["m1"]
    assert [statuses_of(bootstrap, name) for name in ("old", "new")] == [["refused kill_switch"]] * 2


def test_what_would_do_the_opposite_on_what_runs_is_refused(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    with platform_server(chat=9) as server:
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            publish(bootstrap, scale())
            wait_for(ended(bootstrap, 1), "the final outcome")
        assert server.log == []
    refused = of(bootstrap, "d1", "refused")
    assert refused.code == "conflict"
    assert "from 4 to 6 replicas was decided, but the platform shows 9: it would stop 3" in refused.detail


def test_an_overtaken_decision_is_superseded(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = FilePlatform(tmp_path / "effects")
    with running(live(bootstrap, unique("actuator"), tmp_path), driver):
        publish(bootstrap, scale("new", after=8), scale("old", time_ns=NOW - S))
        wait_for(ended(bootstrap, 2), "two final outcomes")
    assert driver.effects() == ["new"]
    assert statuses_of(bootstrap, "old") == ["superseded stale"]


def still_site(folder: Path, **fields: Any) -> Site:
    """One actuator without a broker, with a workload of 4 replicas of a tenant who may have 7."""
    quota = GuardPolicy(name="most", workloads=("chat",), quota=Quota(replicas=7))
    config = config_for("", "g", mode="live", ledger=str(folder / "ledger"), policies=(quota,), **fields)
    return Site(
        folder, config, [spec(), spec("sibling")], allowed=("chat",), actuators=("a",), partitions=1,
        chance=random.Random(1),
    )  # fmt: skip


def carried_out(site: Site, *newer: AnyDecision, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
    """What has an effect, if these come, and this happens, while `old` waits for its call."""
    (process,) = site.processes
    with still_time(site):
        started(process)
        while not any(outcome.status == "accepted" for outcome in site.broker.all_outcomes()):
            process.step()
        process.held = True
        for _ in range(3):
            process.step()
        for decision in newer:
            site.send(decision)
        for _ in range(3):
            process.step()
        meanwhile()
        process.held = False
        site.settle()
        process.kill()
    assert site.open() == set()
    return [effect.decision for effect in site.account.effects]


def last(site: Site, decision: str) -> str:
    (outcome,) = site.final_outcomes()[decision]
    return f"{outcome.status} {outcome.code}".strip()


def test_what_waits_for_its_call_is_done_if_the_newer_one_is_refused(tmp_path: Path) -> None:
    """0034: `old` is replaced once `new` is accepted, and not before."""
    cases: dict[str, tuple[AnyDecision, dict[str, Any], bool, list[str], str]] = {
        "refused when it comes": (scale("new", after=8, time_ns=NOW + S), {}, False, ["old"], "quota"),
        "refused when it is looked at": (scale("new", after=7, time_ns=NOW + S), {}, True, ["old"], "quota"),
        "it was to start where the older one ends": (
            scale("new", before=6, after=8, time_ns=NOW + S), {}, False, ["old"], "quota",
        ),
        "less than the older one": (
            scale("new", before=6, after=2, time_ns=NOW + S),
            {"blast_radius": BlastRadiusParameters(share=0.0, replicas=1)}, False, [], "blast_radius",
        ),
        "no room for both": (
            scale("new", after=7, time_ns=NOW + S), {"per_target": RateParameters(actions=1)}, False, ["old"], "rate",
        ),
        "accepted": (scale("new", after=7, time_ns=NOW + S), {}, False, ["new"], ""),
    }  # fmt: skip
    for number, (name, (newer, fields, fills, effects, code)) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        site = still_site(folder, **fields)
        site.orders.place("sibling", 0)
        site.send(scale("old"))
        meanwhile = (lambda site=site: site.orders.place("sibling", 1)) if fills else lambda: None
        assert carried_out(site, newer, meanwhile=meanwhile) == effects, name
        assert last(site, "new") == (f"refused {code}" if code else "done"), name
        assert last(site, "old") == ("done" if "old" in effects else "superseded stale"), name
        assert site.broken() == [], name


def test_of_several_the_one_before_the_refused_one_is_done(tmp_path: Path) -> None:
    site = still_site(tmp_path)
    site.orders.place("sibling", 0)
    site.send(scale("old", after=5))
    newer = (scale("mid", after=6, time_ns=NOW + S), scale("new", after=8, time_ns=NOW + 2 * S))
    assert carried_out(site, *newer) == ["mid"]
    assert [last(site, name) for name in ("old", "mid", "new")] == ["superseded stale", "done", "refused quota"]


def test_a_rescue_goes_before_what_waits(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    with platform_server(chat=4) as server:
        server.held = True
        config = live(bootstrap, unique("actuator"), tmp_path, server)
        wide = msgspec.structs.replace(config.actuator, blast_radius=BlastRadiusParameters(replicas=6))
        with running(msgspec.structs.replace(config, actuator=wide)):
            publish(bootstrap, scale("first"))
            wait_for(lambda: "running" in statuses_of(bootstrap, "first"), "the first operation")
            resized = scale("resized", before=6, after=6, resources=Resources(cpu=2.0))
            publish(bootstrap, resized, migrate("rescue"), scale("late", time_ns=NOW - S))
            wait_for(lambda: "superseded stale" in statuses_of(bootstrap, "late"), "the end of what came after both")
            for count, decision in enumerate(("first", "rescue", "resized"), 1):
                wait_for(lambda count=count: len(server.log) == count, decision)  # type: ignore[misc]
                server.finish(server.log[-1])
            wait_for(ended(bootstrap, 4), "four final outcomes")
    assert server.log == ["first", "rescue", "resized"]


def test_a_decision_stands_for_one_that_expired_before_it_was_known(
    bootstrap: str, unique: Unique, tmp_path: Path
) -> None:
    """What a minute without an actuator leaves behind: each decision starts where the one before would have ended."""
    with platform_server(chat=4) as server, running(live(bootstrap, unique("actuator"), tmp_path, server)):
        publish(
            bootstrap,
            scale("d1", before=4, after=6, time_ns=NOW - 150 * S),
            scale("d2", before=6, after=8, time_ns=NOW - 130 * S),
            scale("d3", before=8, after=9, time_ns=NOW - 60 * S),
        )
        wait_for(ended(bootstrap, 3), "three final outcomes")
        publish(bootstrap, scale("d4", before=12, after=14, time_ns=NOW + S))
        wait_for(ended(bootstrap, 4), "the final outcome on what knew better")
    assert [statuses_of(bootstrap, d)[-1] for d in ("d1", "d2", "d3", "d4")] == [
        "refused expired", "refused expired", "done", "refused conflict",
    ]  # fmt: skip
    assert server.effects == ["d3"]


def test_the_platform_is_told_how_many_it_may_resize(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    class Sized(FilePlatform):
        def observe(self, decision: AnyDecision) -> SubjectState:
            return SubjectState(replicas=9, ready=9)

        def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
            assert isinstance(decision, Scale)
            batches.append(decision.batch_size)
            return super().submit(decision, observed, dry_run=dry_run)

    batches: list[int | None] = []
    driver = Sized(tmp_path / "effects")
    with running(live(bootstrap, unique("actuator"), tmp_path), driver):
        publish(bootstrap, scale("d1", before=9, after=9, resources=Resources(cpu=1.0)))
        wait_for(ended(bootstrap, 1), "the first batch")
        publish(bootstrap, scale("d2", before=9, after=9, time_ns=NOW + S, resources=Resources(cpu=1.0)))
        wait_for(ended(bootstrap, 2), "the next one")
    assert batches == [4]
    assert of(bootstrap, "d2", "refused").code == "blast_radius"
