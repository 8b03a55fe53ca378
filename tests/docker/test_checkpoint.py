"""Checkpoints, on the double: CRIU does not work on every kernel."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.actuators.carry_out import carried_out
from tests.actuators.samples import preempt, scale
from tests.docker.double import Double
from tests.docker.machine import Machine

from flyball_actuators.platforms import Done


def test_work_goes_on_from_its_checkpoint_once() -> None:
    double = Double(experimental=True)
    with TemporaryDirectory() as place:
        machine = Machine(double, Path(place))
        machine.make("train", Labels={"flyball.dev/preempt": "checkpoint"})
        for i in range(2):
            now_ns = time.time_ns()
            stop = preempt(f"stop-{i}", before=1, after=0, time_ns=now_ns)
            assert isinstance(carried_out(machine.platform(), stop), Done)
            assert machine.states() == {"train": "exited"}
            resume = scale(f"go-{i}", before=0, after=1, time_ns=now_ns)
            assert isinstance(carried_out(machine.platform(), resume), Done)
            assert machine.shown("train")["saved"] == {}  # it must not bring back old work a second time
        assert [what for what, _ in double.events] == ["create", "start", *["checkpoint", "restore"] * 2]
        machine.clear()
