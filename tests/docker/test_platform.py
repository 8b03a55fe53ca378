"""Driver ``docker``: the same on a real engine and on the double."""

import re
import time
from typing import Any

import msgspec
import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.actuators.samples import migrate, preempt, scale
from tests.docker.double import Double
from tests.docker.machine import Machine

from flyball_actuators.platforms import Done, Failed, Handle, PlatformError, Rejected, Superseded, make_platforms
from flyball_actuators.platforms.calls import Call, StoppedError, recording_calls
from flyball_actuators.platforms.docker import DockerPlatform
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Resources, Scale, SubjectState


def now(**more: Any) -> Scale:
    more.setdefault("time_ns", time.time_ns())
    return scale(**more)


def test_the_engine_answers_as_the_double_does(machine: Machine) -> None:
    """What the driver rests on, asked of the engine itself."""
    machine.make("one", run=False)
    body = {"Image": "flyball-test:1", "Cmd": ["sleep", "9"], "HostConfig": {"NetworkMode": "none"}}
    volume = {"Name": "flyball-x", "Labels": {"a": "1"}}
    requests = [
        ("POST", "/containers/create?name=one", body),  # the name is taken
        ("POST", "/containers/create?name=two", body | {"Image": "no-such:1"}),
        ("POST", "/containers/one/stop", None),  # it does not run
        ("POST", "/containers/one/start", None),
        ("POST", "/containers/one/start", None),  # it runs
        ("POST", "/containers/one/unpause", None),  # it is not paused
        ("POST", "/containers/one/pause", None),
        ("POST", "/containers/one/pause", None),
        ("POST", "/containers/one/start", None),
        ("POST", "/containers/one/unpause", None),
        ("POST", "/containers/one/update", {"NanoCpus": 500_000_000}),
        ("POST", "/containers/one/update", {"NanoCpus": 1_000_000_000_000}),
        ("POST", "/containers/one/update", {"Memory": 1}),
        ("POST", "/containers/one/update", {"Memory": 64 << 20}),  # not without the sum of memory and swap
        ("POST", "/containers/none/start", None),
        ("GET", "/containers/none/json", None),
        ("GET", "/containers/one/checkpoints", None),
        ("GET", "/volumes/flyball-x", None),
        ("POST", "/volumes/create", volume),
        ("POST", "/volumes/create", volume | {"Labels": {"a": "2"}}),  # it is there
    ]
    statuses = [machine.call(method, path, body)[0] for method, path, body in requests]
    assert statuses == [
        409, 404, 304, 204, 304, 500, 204, 409, 409, 204, 200, 400, 400, 409, 404, 404, 501, 404, 201, 201,
    ]  # fmt: skip
    assert machine.call("GET", "/volumes/flyball-x")[1]["Labels"] == {"a": "1"}
    assert machine.shown("one")["HostConfig"]["NanoCpus"] == 500_000_000


def test_a_workload_is_the_containers_with_its_label(machine: Machine) -> None:
    machine.make("chat-a")
    machine.make("chat-b", run=False)
    machine.make("other", workload="other")
    state = machine.platform().observe(preempt(victims=("chat-a", "chat-b", "chat-z")))
    assert isinstance(state, SubjectState)
    assert (state.replicas, state.ready, state.suspended) == (1, 1, False)
    assert set(state.nodes) == {"chat-a", "chat-b"}
    assert state.nodes["chat-a"]
    assert state.nodes["chat-b"] == ""
    nobody = machine.platform().observe(now(workload="nobody"))
    assert isinstance(nobody, Rejected)
    assert nobody.code == "unknown_target"


def test_up_starts_what_is_stopped_and_copies_the_rest(machine: Machine) -> None:
    machine.make("chat", Env=["MODEL=small"], HostConfig={"Memory": 64 << 20})
    machine.make("spare", run=False)
    machine.make("frozen")
    assert machine.call("POST", "/containers/frozen/pause")[0] == 204
    decision = now(before=1, after=5)
    done = carried_out(machine.platform(), decision)
    assert isinstance(done, Done), done
    assert (done.observed.replicas, done.observed.ready) == (5, 5)
    states = machine.states()
    copies = sorted(set(states) - {"chat", "spare", "frozen"})
    assert len(copies) == 2
    assert set(states.values()) == {"running"}
    for name in copies:
        copy, made = machine.shown(name), machine.shown("chat")
        assert copy["Image"] == made["Image"]
        assert "MODEL=small" in copy["Config"]["Env"]
        assert copy["HostConfig"]["Memory"] == 64 << 20
        assert copy["HostConfig"]["NetworkMode"] == "none"
        assert copy["Config"]["Hostname"] != made["Config"]["Hostname"]
        assert copy["Config"]["Labels"]["flyball.dev/decision"] == decision.id
    back = carried_out(machine.platform(), now(id_="d2", before=5, after=2))
    assert isinstance(back, Done), back
    assert {name for name, state in machine.states().items() if state == "exited"} == {*copies, "frozen"}
    again = carried_out(machine.platform(), now(id_="d3", before=2, after=5))
    assert isinstance(again, Done), again
    assert set(machine.states()) == set(states)  # no container more


def test_dry_run_plans_and_changes_nothing(machine: Machine) -> None:
    machine.make("chat")
    before = machine.states()
    machine.proxy.calls.clear()
    planned = submitted(machine.platform(), now(before=1, after=3), dry_run=True)
    assert isinstance(planned, Handle)
    assert planned.answer.startswith("would be done: copy chat-")
    assert machine.states() == before
    assert {call.split()[0] for call in machine.proxy.calls} == {"GET"}


def test_preempt_as_the_owner_says(machine: Machine) -> None:
    machine.make("kept")
    machine.make("stops")
    machine.make("sleeps", Labels={"flyball.dev/preempt": "pause"})
    done = carried_out(
        machine.platform(), preempt(before=3, after=1, victims=("stops", "sleeps"), time_ns=time.time_ns())
    )
    assert isinstance(done, Done), done
    assert machine.states() == {"kept": "running", "stops": "exited", "sleeps": "paused"}
    assert done.observed.nodes == {"stops": "", "sleeps": ""}
    back = carried_out(machine.platform(), now(before=1, after=2))
    assert isinstance(back, Done), back
    assert machine.states() == {"kept": "running", "stops": "exited", "sleeps": "running"}


def test_a_container_that_hangs_is_stopped_and_started_however_it_is_preempted_otherwise(machine: Machine) -> None:
    machine.make("hangs", Labels={"flyball.dev/preempt": "pause"})
    before = machine.shown("hangs")["State"]["StartedAt"]
    stop = preempt(before=1, after=0, checkpoint=False, beneficiary="chat", time_ns=time.time_ns())
    assert isinstance(carried_out(machine.platform(), stop), Done)
    assert machine.states() == {"hangs": "exited"}
    assert isinstance(carried_out(machine.platform(), now(before=0, after=1)), Done)
    assert machine.states() == {"hangs": "running"}
    assert machine.shown("hangs")["State"]["StartedAt"] != before


def test_resources_are_updated_in_place(machine: Machine) -> None:
    machine.make("chat", HostConfig={"Memory": 64 << 20, "MemorySwap": 96 << 20})
    machine.make("bound", HostConfig={"CpuPeriod": 50_000, "CpuQuota": 25_000})
    started = machine.shown("chat")["State"]["StartedAt"]
    wanted = Resources(cpu=0.75, memory_bytes=128 << 20)
    done = carried_out(machine.platform(), now(before=2, after=2, resources=wanted))
    assert isinstance(done, Done), done
    assert done.observed.resources == wanted
    host = machine.shown("chat")["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (750_000_000, 128 << 20, 160 << 20)
    assert machine.shown("bound")["HostConfig"]["CpuQuota"] == 37_500
    assert machine.shown("chat")["State"]["StartedAt"] == started
    batch = msgspec.structs.replace(now(id_="b", before=2, after=2, resources=Resources(cpu=0.5)), batch_size=1)
    shown = [carried_out(machine.platform(), msgspec.structs.replace(batch, id=id_)) for id_ in ("b1", "b2")]
    assert [one.observed.resources for one in shown if isinstance(one, Done)] == [
        None, Resources(cpu=0.5, memory_bytes=128 << 20)
    ]  # fmt: skip
    refused = carried_out(machine.platform(), now(id_="d2", before=2, after=2, resources=Resources(cpu=1e4)))
    assert isinstance(refused, Failed)
    assert "cannot update: HTTP 400: " in refused.answer


def test_a_batch_of_new_resources_is_of_those_that_run(machine: Machine) -> None:
    machine.make("old", run=False)
    machine.make("chat")
    wanted = Resources(cpu=0.5)
    decision = msgspec.structs.replace(now(before=1, after=1, resources=wanted), batch_size=1)
    done = carried_out(machine.platform(), decision)
    assert isinstance(done, Done), done
    assert done.observed.resources == wanted
    assert {machine.shown(name)["HostConfig"]["NanoCpus"] for name in ("chat", "old")} == {500_000_000}


@pytest.mark.parametrize(
    ("made", "decision", "code", "says"),
    [
        ({"HostConfig": {"AutoRemove": True}}, {"after": 0}, "unsupported", "removed for good.*run it without --rm"),
        (
            {"HostConfig": {"PortBindings": {"80/tcp": [{"HostPort": "8080"}]}}},
            {"after": 3},
            "unsupported",
            "fixed port of the machine for 80/tcp.*publish it as -p 80 or a range; or request 1 replicas",
        ),
        ({}, {"after": 200}, "invalid", "too many for a machine"),
        ({}, {"after": 1, "resources": Resources(gpu_profile="1g.10gb")}, "unsupported", "part of a GPU"),
        ({}, {"after": 2, "power_limit_w": 300.0}, "unsupported", "a power limit"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(
    machine: Machine, made: dict[str, Any], decision: dict[str, Any], code: str, says: str
) -> None:
    machine.make("chat", **made)
    refused = submitted(machine.platform(), now(before=1, **decision))
    assert isinstance(refused, Rejected)
    assert refused.code == code

    assert re.search(says, refused.detail)
    assert machine.states() == {"chat": "running"}
    assert not [call for call in machine.proxy.calls if not call.startswith("GET")]


def test_a_checkpoint_is_refused_where_the_engine_takes_none(machine: Machine) -> None:
    machine.make("train", Labels={"flyball.dev/preempt": "checkpoint"})
    refused = submitted(machine.platform(), preempt(before=1, after=0, time_ns=time.time_ns()))
    assert isinstance(refused, Rejected)
    assert "takes no checkpoints: they need CRIU and dockerd --experimental" in refused.detail
    assert machine.states() == {"train": "running"}


def test_a_change_by_somebody_else_is_a_conflict(machine: Machine) -> None:
    machine.make("chat")
    platform, decision = machine.platform(), now(before=1, after=2)
    observed = platform.observe(decision)
    machine.make("more")
    assert isinstance(observed, SubjectState)
    refused = platform.submit(decision, observed, dry_run=False)
    assert isinstance(refused, Rejected)
    assert refused.code == "conflict"


def test_what_somebody_else_undoes_is_superseded(machine: Machine) -> None:
    machine.make("chat", Cmd=["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], StopTimeout=4)
    platform = machine.platform(timeout_s=2.0)
    handle = submitted(platform, preempt(before=1, after=0, time_ns=time.time_ns()))
    assert isinstance(handle, Handle)
    assert isinstance(ended(machine.platform(), handle), Done)  # its time was over, and then it was killed
    handle = submitted(machine.platform(), now(id_="up", before=0, after=1))
    assert isinstance(handle, Handle)
    assert machine.call("DELETE", "/containers/chat?force=true")[0] == 204
    assert isinstance(machine.platform().poll(handle), Superseded)


def test_a_container_that_ends_at_once_is_not_started_for_ever(machine: Machine) -> None:
    machine.make("chat", Cmd=["sh", "-c", "exit 3"], run=False)
    handle = submitted(machine.platform(), now(before=0, after=1))
    assert isinstance(handle, Handle)
    if isinstance(machine.proxy._backend, Double):  # pyright: ignore[reportPrivateUsage]
        machine.proxy._backend.end("chat")  # pyright: ignore[reportPrivateUsage]
    time.sleep(0.3)
    failed = machine.platform().poll(handle)
    assert isinstance(failed, Failed)
    assert "was started and has ended; see its log" in failed.answer
    assert sum("/start" in call for call in machine.proxy.calls) == 1


def test_nothing_is_begun_once_the_decision_has_expired(machine: Machine) -> None:
    machine.make("chat", run=False)
    decision = now(before=0, after=1)
    handle = submitted(machine.platform(), decision)
    assert isinstance(handle, Handle)
    machine.call("POST", "/containers/chat/stop?t=0")
    machine.make("again", run=False)
    later = machine.platform(ahead_s=1000)
    assert later.find(decision, None) == later.find(decision, None)
    assert isinstance(later.poll(handle), Failed)
    assert machine.running() == 0


def test_nothing_is_done_while_everything_is_stopped(machine: Machine) -> None:
    for name in ("chat", "talk"):
        machine.make(name)
    decision = now(before=2, after=0)
    calls: list[Call] = []
    with recording_calls(calls.append, lambda: "ann stopped everything"), pytest.raises(StoppedError):
        submitted(machine.platform(), decision)
    assert (machine.running(), calls) == (2, [])
    stop = iter(["", "", *["ann stopped everything"] * 9])  # it comes after the plan is stored and one call is made
    with recording_calls(calls.append, lambda: next(stop)), pytest.raises(StoppedError):
        submitted(machine.platform(), decision)
    assert machine.running() >= 1
    with recording_calls(calls.append):
        found = machine.platform().find(decision, None)
        assert found is not None
        assert isinstance(ended(machine.platform(), found), Done)
    assert machine.running() == 0
    assert sum("/stop" in call.object for call in calls) == 2


def test_plans_of_old_decisions_are_removed(machine: Machine) -> None:
    machine.make("chat")
    old = now(id_="old", before=1, after=1, time_ns=time.time_ns() - 2 * 86_400 * 10**9)
    submitted(machine.platform(), old)
    assert machine.platform().find(old, None) is not None
    submitted(machine.platform(), now(id_="new", before=1, after=1))
    assert machine.platform().find(old, None) is None


def test_there_is_nowhere_to_go(machine: Machine) -> None:
    machine.make("chat")
    platform = machine.platform()
    refused = submitted(platform, migrate(replica="chat"))
    assert isinstance(refused, Rejected)
    assert "nowhere else to go" in refused.detail
    assert "Migrate" not in platform.capabilities.kinds


def test_an_engine_that_is_away_or_of_another_age_is_said_so(tmp_path: Any) -> None:
    away = DockerPlatform(PlatformConfig(driver="docker", url=f"unix://{tmp_path}/none"))
    with pytest.raises(PlatformError, match="No such file"):
        away.observe(now())


@pytest.mark.parametrize("url", ["http://127.0.0.1:2375", "unix://host/var/run/docker.sock", "/var/run/docker.sock"])
def test_only_a_local_socket_is_taken(url: str) -> None:
    entry = PlatformConfig(driver="docker", url=url)
    with pytest.raises(
        ConfigError, match=r"actuator\.platforms\[0\]\.url: .* is no Unix socket; pass such as unix:///"
    ):
        make_platforms(ActuatorConfig(platforms=(entry,)), lambda _cell, _workload: {})
