"""A platform that does not answer is left alone: counted where the calls arrive."""

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
from tests.actuators.in_memory.site import Site, still_time
from tests.actuators.loop import live, outcomes, publish, read_all, running, statuses_of, wait_for
from tests.actuators.platform_server import platform_server
from tests.actuators.samples import NOW, S, scale, spec
from tests.actuators.service.test_stateful import CONFIG

from flyball_actuators.execution.breaker import FAILURES
from flyball_actuators.execution.carry_out import CALLS_AT_ONCE
from flyball_cli.incidents.rules import RULES
from flyball_contracts.codec import decode_message
from flyball_contracts.records import PlatformStatus
from flyball_contracts.topics import INSIGHTS
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.sinks.lines import to_lines

NAMES = [f"w{i}" for i in range(40)]
PROBES = 6  # after 1, 2, 4, 8, 16 and 30 s, each longer by up to a quarter: more than a minute


def test_calls_stop_and_one_probe_after_a_growing_wait_brings_them_back(tmp_path: Path) -> None:
    site = Site(tmp_path, CONFIG, [*map(spec, NAMES)], allowed=NAMES, actuators=("a",), chance=random.Random(1))
    (process,) = site.processes
    faults, many = site.account.faults, 10_000
    with still_time(site):
        process.start()
        for _ in range(4):
            process.step()
        faults["observe"] = many
        for i, name in enumerate(NAMES):
            site.send(scale(f"d{i}", workload=name, time_ns=site.now_ns, ttl_s=150))
        calls_at_s: list[float] = []
        begun_s = site.time.now_s
        while site.time.now_s < begun_s + 80.0:
            before = faults["observe"]
            process.step()
            calls_at_s += [site.time.now_s - begun_s] * (before - faults["observe"])
            site.time.now_s += 0.1
        faults["observe"] = 0
        site.settle()
        process.kill()
    probes_s = calls_at_s[FAILURES:]
    assert len(set(calls_at_s[:FAILURES])) == 1, "all in the first turn"
    waits_s = [round(b - a) for a, b in zip(calls_at_s[FAILURES - 1 :], probes_s, strict=False)]
    assert len(probes_s) == PROBES
    assert waits_s == sorted(waits_s)
    assert len(site.account.effects) == len(NAMES), "none had expired when the platform answered again"
    assert site.broken() == []


def test_calls_that_failed_together_are_not_made_again_together(tmp_path: Path) -> None:
    names = NAMES[: FAILURES - 1]
    site = Site(tmp_path, CONFIG, [*map(spec, names)], allowed=names, actuators=("a",), chance=random.Random(1))
    (process,) = site.processes
    with still_time(site):
        process.start()
        for _ in range(4):
            process.step()
        site.account.faults["observe"] = len(names)
        for name in names:
            site.send(scale(f"d-{name}", workload=name, time_ns=site.now_ns))
        begun_s, again_s = site.time.now_s, dict[str, float]()
        while len(again_s) < len(names):
            process.step()
            for outcome in site.broker.all_outcomes():
                again_s.setdefault(outcome.decision, site.time.now_s - begun_s)
            site.time.now_s += 0.0005
        site.settle()
        process.kill()
    assert len(set(again_s.values())) == len(names)
    assert 0.25 <= min(again_s.values()) <= max(again_s.values()) < 0.35, "by a quarter at most"
    assert site.broken() == []


def test_what_waits_for_a_platform_that_does_not_answer_is_refused_with_the_remedy(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    now_ns = NOW
    publish(bootstrap, *map(spec, NAMES))
    with platform_server(**dict.fromkeys(NAMES, 4)) as server:
        server.broken = True
        config = live(bootstrap, unique("actuator"), tmp_path, server)
        with running(config, clock=lambda: now_ns) as actuator:
            publish(bootstrap, *(scale(f"d{i}", workload=name) for i, name in enumerate(NAMES)))
            wait_for(lambda: len(read_all(bootstrap, INSIGHTS.name)) == 1, "the report of the failures")
            now_ns += 121 * S
            wait_for(lambda: {o.status for o in outcomes(bootstrap)} == {"refused"}, "a refusal")
            wait_for(lambda: sum(o.final for o in outcomes(bootstrap)) == len(NAMES), "the last words")
            calls = len(server.calls)
            server.broken = False
            publish(bootstrap, scale("later", workload="w0", time_ns=now_ns))
            wait_for(lambda: "done" in statuses_of(bootstrap, "later"), "the platform's recovery")
    assert calls < FAILURES + CALLS_AT_ONCE + PROBES < len(NAMES)
    refused = [o for o in outcomes(bootstrap) if o.status == "refused"]
    assert {o.code for o in refused} == {"platform"}
    held_back = [o.detail for o in refused if "calls are held back, and one is tried every" in o.detail]
    assert held_back
    assert all("check that it runs and can be reached" in detail and "HTTP 503" in detail for detail in held_back)
    assert server.effects == ["later"]
    assert actuator.report is not None
    assert actuator.report.breakers_opened == 1
    told = [decode_message(INSIGHTS.name, value, headers) for value, headers in read_all(bootstrap, INSIGHTS.name)]
    opened, *_, closed = (status for status in told if isinstance(status, PlatformStatus))
    assert (opened.driver, opened.cells, opened.open, opened.since_ns, opened.opened) == (
        "simulated",
        "*",
        True,
        NOW,
        1,
    )
    assert "HTTP 503" in opened.problem
    assert (closed.open, closed.failures, closed.problem) == (False, 0, "")
    assert closed.since_ns == closed.time_ns == now_ns
    (alert,) = (rule for rule in RULES if rule.alert == "PlatformUnanswered")
    (line,) = to_lines(opened)
    assert line.startswith("flyball.actuator.breaker,")
    assert " open=true," in line
    assert '"flyball.actuator.breaker_open"' in alert.expr, "the store joins measurement and field by _"
    view = FleetView()
    for status, silent in ((closed, []), (opened, []), (msgspec.structs.replace(opened, time_ns=now_ns + 1), ["*"])):
        view.apply(status)
        assert [one.cells for one in view.silent_platforms({})] == silent, "the newest counts"
    for later_s, silent in ((170, ["*"]), (190, [])):
        now = {"cell-a": now_ns + later_s * S}
        assert [one.cells for one in view.silent_platforms(now)] == silent, "who published it may have ended"


def test_what_an_actuator_left_open_is_closed_by_the_first_answer_to_another(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    publish(bootstrap, spec("chat"))
    with platform_server(chat=4) as server, running(live(bootstrap, unique("actuator"), tmp_path, server)):
        publish(bootstrap, scale())
        wait_for(lambda: len(read_all(bootstrap, INSIGHTS.name)) == 1, "the report")
        wait_for(lambda: "done" in statuses_of(bootstrap, "d1"), "the outcome")
    (status,) = (decode_message(INSIGHTS.name, *one) for one in read_all(bootstrap, INSIGHTS.name))
    assert isinstance(status, PlatformStatus)
    assert (status.cells, status.open, status.since_ns) == ("*", False, NOW)


def test_nothing_is_submitted_to_a_platform_that_has_fallen_silent_since_the_look(tmp_path: Path) -> None:
    names, untouched = NAMES[: FAILURES + 1], 100
    site = Site(tmp_path, CONFIG, [*map(spec, names)], allowed=names, actuators=("a",), chance=random.Random(1))
    (process,) = site.processes
    faults = site.account.faults
    with still_time(site):
        process.start()
        for _ in range(4):
            process.step()
        site.slowly, faults["before"] = 1.0, untouched  # claims are written with a later turn
        site.send(scale("claimed", workload=names[0], time_ns=site.now_ns))
        process.step()
        faults["observe"] = 10 * FAILURES
        for name in names[1:]:
            site.send(scale(f"d-{name}", workload=name, time_ns=site.now_ns))
        for _ in range(5):
            process.step()
        assert [outcome.decision for outcome in site.broker.all_outcomes()] == ["claimed"]
        assert faults["before"] == untouched
        site.settle()
        process.kill()
    assert site.broken() == []
    assert len(site.account.effects) == len(names)
