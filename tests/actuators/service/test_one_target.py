"""Several decisions about one target: which goes first, which takes the place of which, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.actuators.loop import (
    FilePlatform,
    ended,
    live,
    of,
    publish,
    running,
    statuses_of,
    wait_for,
)
from tests.actuators.platform_server import platform_server
from tests.actuators.samples import NOW, S, migrate, scale

from flyball_actuators.parameters import BlastRadiusParameters
from flyball_actuators.platforms import Handle, Rejected
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
            wait_for(lambda: "superseded stale" in statuses_of(bootstrap, "old"), "the end of the older one that waits")
            switch.write_text("rack on fire")
            server.finish("m1")
            wait_for(ended(bootstrap, 3), "the final outcomes")
    assert server.effects == ["m1"]
    assert statuses_of(bootstrap, "new") == ["refused kill_switch"]


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


def test_a_decision_stands_for_one_that_expired_before_anybody_could_know(
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
