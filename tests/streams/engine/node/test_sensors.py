"""A sensor that repeats one value while the load changes, and a metric that is no longer reported, are signs."""

from collections.abc import Callable, Mapping

import numpy as np
from tests.streams.engine.node.test_profiles import CHOSEN, frames, lanes
from tests.streams.engine.scene import Cell, Out, inventory, spec

from flyball_contracts.records import Allocation, Anomaly, Incident, Symptom

EVERY = 30
TEMPERATURE = "hw.temperature{sensor=gpu}"
Shown = Callable[[int], Mapping[str, object]]


def cell() -> Cell:
    held = tuple(Allocation(workload="a", replica=f"a-{i}", devices=(i,)) for i in range(2))
    return Cell(inventory("node-1", 2, held), records=[spec("a", max_replicas=2)], config=CHOSEN)


def live(second: int) -> dict[str, object]:
    """A quarter of an hour at full load, one at a fifth; power and temperature follow."""
    use = 0.95 if second // 900 % 2 == 0 else 0.2
    wave = 0.01 * np.array([second % 7, second % 5], np.float32)
    return {
        "hw.gpu.utilization{task=general}": use + wave,
        "hw.power": 100.0 + 500.0 * (use + wave),
        TEMPERATURE: np.round(40.0 + 30.0 * use + 100.0 * wave / 5.0),
        "nvidia.gpu.sm.activity": 0.8 * use + wave,
    }


def run(of: Cell, first: int, until: int, shown: Shown = live) -> Out:
    out = Out([])
    for index in range(first, until, EVERY):
        out.messages.extend(of.feed(frames(of.agents[0], index, shown(index), every=EVERY)).messages)  # type: ignore[arg-type]
    return out


def signs(out: Out) -> list[Symptom]:
    found = {(s.detector, s.device): s for i in out.of(Incident) for s in i.symptoms if s.cause == "telemetry"}
    return list(found.values())


def frozen(second: int) -> dict[str, object]:
    shown = live(second)
    shown[TEMPERATURE] = np.array([71.0, shown[TEMPERATURE][1]], np.float32)  # type: ignore[index]
    return shown


def test_a_temperature_that_stands_still_while_the_load_falls_is_a_sign_and_is_not_trusted() -> None:
    here = cell()
    assert signs(run(here, 0, 1800)) == []
    out = run(here, 1800, 3600, frozen)
    (sign,) = signs(out)
    assert (sign.detector, sign.severity, sign.strength, sign.device) == ("stuck_sensor", "info", "sign", "node-1/0")
    assert "exactly 71 Cel" in sign.text
    assert [a for a in out.of(Anomaly) if a.evidence[0].name == TEMPERATURE] == []
    assert here.engine.nodes[0].cells["cell-1"].sensors.stuck[:2].tolist() == [[True, False], [False, False]]
    run(here, 3600, 3720)
    assert not here.engine.nodes[0].cells["cell-1"].sensors.stuck.any()


def test_a_steady_temperature_under_a_steady_load_and_a_sensor_that_never_moved_are_none() -> None:
    def steady(second: int) -> dict[str, object]:
        return live(second % 900) | {TEMPERATURE: 70.0}

    def deaf(second: int) -> dict[str, object]:
        return live(second) | {TEMPERATURE: 0.0}

    here = cell()
    run(here, 0, 1800)
    assert signs(run(here, 1800, 3300, steady)) == []
    assert signs(run(cell(), 0, 1800, deaf)) == []


def test_a_metric_that_is_no_longer_reported_is_a_sign_after_ten_minutes_and_a_lost_device_has_others() -> None:
    here = cell()
    run(here, 0, 1200)

    def without(second: int) -> dict[str, object]:
        return live(second) | {"nvidia.gpu.sm.activity": np.array([np.nan, 0.5], np.float32)}

    assert signs(run(here, 1200, 1680, without)) == []
    (sign,) = signs(run(here, 1680, 2400, without))
    assert (sign.detector, sign.severity, sign.device) == ("missing_metric", "info", "node-1/0")
    assert "nvidia.gpu.sm.activity" in sign.text
    assert {s.record for s in signs(run(here, 2400, 3300, lambda _: {}))} <= {sign.record}


def test_a_restart_keeps_what_is_known_of_sensors() -> None:
    here, again = cell(), cell()
    run(here, 0, 1000)
    again.agents[0].seq = here.agents[0].seq
    run(again, -EVERY, 0)
    for lane, kept in zip(lanes(again), lanes(here), strict=True):
        lane.restore(kept.snapshot())
    here.agents[0].seq = again.agents[0].seq
    later = [run(one, 1000, 1200).messages for one in (here, again)]
    assert [m.value for m in later[0]] == [m.value for m in later[1]]
