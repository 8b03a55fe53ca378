"""Decisions that take long leave room for rescues."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.loop import ended, live, publish, running, statuses_of, wait_for
from tests.actuators.platform_server import platform_server
from tests.actuators.samples import migrate, scale, spec


def test_rescues_start_when_as_many_others_are_under_way_as_may_be(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flyball_actuators.execution.lanes.MOST_UNDER_WAY", 2)
    monkeypatch.setattr("flyball_actuators.execution.lanes.RESCUES_BEYOND", 1)
    names = [f"w{i}" for i in range(6)]
    publish(bootstrap, *map(spec, names))
    with platform_server(**dict.fromkeys(names, 4)) as server:
        server.held = True
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            publish(bootstrap, *(scale(f"d-{name}", workload=name) for name in names[:2]))
            wait_for(lambda: len(server.operations) == 2, "as many as may be under way")
            publish(bootstrap, scale("d-w2", workload="w2"))
            publish(bootstrap, migrate("rescue-1", workload="w3", replica="w3-0"))
            wait_for(lambda: "rescue-1" in server.operations, "a rescue beyond them")
            publish(bootstrap, migrate("move", workload="w4", replica="w4-0", from_device=""))
            publish(bootstrap, migrate("rescue-2", workload="w5", replica="w5-0"))
            server.finish("rescue-1")
            wait_for(lambda: "rescue-2" in server.operations, "the next, once the first has ended")
            assert statuses_of(bootstrap, "d-w2") == statuses_of(bootstrap, "move") == []
            for operation in ("rescue-2", "d-w0", "d-w1"):
                server.finish(operation)
            wait_for(lambda: {"d-w2", "move"} <= server.operations.keys(), "the others, once there is room")


def test_rescues_are_read_and_start_while_more_others_wait_than_are_taken_up(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flyball_actuators.execution.lanes.MOST_UNDER_WAY", 2)
    monkeypatch.setattr("flyball_actuators.execution.lanes.RESCUES_BEYOND", 1)
    monkeypatch.setattr("flyball_actuators.loop.MOST_WAITING", 4)
    monkeypatch.setattr("flyball_actuators.loop.RESCUES_WAITING", 1)
    names = [f"w{i}" for i in range(10)]
    publish(bootstrap, *map(spec, (*names, "sick", "sick-too")))
    with platform_server(**dict.fromkeys((*names, "sick", "sick-too"), 4)) as server:
        server.held = True
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            publish(bootstrap, *(scale(f"d-{name}", workload=name) for name in names))
            wait_for(lambda: len(server.operations) == 2, "as many as may be under way")
            publish(bootstrap, migrate("rescue-1", workload="sick", replica="sick-0"))
            publish(bootstrap, migrate("rescue-2", workload="sick-too", replica="sick-too-0"))
            wait_for(lambda: "rescue-1" in server.operations, "the first rescue")
            assert server.operations.keys() == {"d-w0", "d-w1", "rescue-1"}
            server.finish("rescue-1")
            wait_for(lambda: "rescue-2" in server.operations, "the second")
            assert not server.operations.keys() & {f"d-{name}" for name in names[2:]}
            server.held = False
            wait_for(ended(bootstrap, len(names) + 2), "all the others")
    assert sorted(server.effects) == sorted(["rescue-1", "rescue-2", *(f"d-{name}" for name in names)])
