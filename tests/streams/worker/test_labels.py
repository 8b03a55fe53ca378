"""What people say of incidents with `flyball incidents label` changes how many there are, also after a restart."""

from collections.abc import Callable

import numpy as np
from tests.cli.shell import flyball
from tests.streams.engine.scene import START_NS, Agent, Values, inventory, spec
from tests.streams.worker.rig import Process, Rig

from flyball_contracts.codec import Message, record_message
from flyball_contracts.records import Allocation, Incident, Migrate
from flyball_contracts.topics import INCIDENTS

GPUS = 8
FULL_HZ = 1.98e9
A_LITTLE, MUCH = 0.94, 0.7
"""Six robust deviations below its peers, less than twice the limit of four; and 36."""


class Gang:
    """A gang on one node of a rig, of which one GPU at a time is slow, and a node that is free."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.index = rig, 0
        held = [Allocation(workload="train", replica=str(i), devices=(i,)) for i in range(GPUS)]
        nodes = inventory("node-1", GPUS, held), inventory("node-2", GPUS)
        self.agent, self.other = map(Agent, nodes)
        rig.send(record_message(r, "/test") for r in (spec("train", kind="training", max_replicas=GPUS), *nodes))

    def ticks(self, count: int, row: int = 0, share: float = 1.0) -> None:
        """Let so many pass, in which a GPU has a share of its clock."""
        clocks = np.full(GPUS, FULL_HZ, np.float32)
        clocks[row] *= share
        for _ in range(count):
            shown = Values({"nvidia.gpu.clock.frequency{clock=sm}": clocks, "hw.power": 500.0})
            frames = [*self.agent.frames(self.index, shown, schemas=(1,)), *self.other.frames(self.index, schemas=(1,))]
            self.rig.send(Message(f.topic, f.key or b"", f.value or b"", []) for f in frames)
            self.index += 1

    def slow(self, worker: Process, row: int, share: float = A_LITTLE) -> None:
        """A GPU is slow for a while, and is well again."""
        self.ticks(15, row, share)
        self.ticks(15)
        self.rig.wait_drained(worker)

    def incidents(self) -> dict[str, Incident]:
        """The newest record of each, by the device."""
        found = [r for r in self.rig.records(INCIDENTS.name) if isinstance(r, Incident)]
        return {i.device: i for i in sorted(found, key=lambda i: i.revision)}

    def named(self) -> set[int]:
        """GPUs that have an incident."""
        return {int(device.rpartition("/")[2]) for device in self.incidents()}

    def left(self) -> set[int]:
        """GPUs that the gang is to leave."""
        return {int(d.from_device.rpartition("/")[2]) for d in self.rig.decisions() if isinstance(d, Migrate)}

    def label(self, worker: Process, row: int, said: str) -> None:
        """Say it of a GPU's incident, and wait until the worker tells it."""
        one = self.incidents()[f"node-1/{row}"]
        done = flyball("incidents", "label", one.id, said, "--reason", "test", "--bootstrap", self._broker())
        assert done.returncode == 0, done.stderr
        assert f"{one.id}: unknown on h100 was {said.removeprefix('--')}" in done.stdout
        for _ in range(50):  # it is told with the tick after which the worker has read it
            self.ticks(1)
            self.rig.wait_drained(worker)
            if self.incidents()[one.device].label is (said == "--true"):
                return
        raise AssertionError(f"the worker did not read the label of {one.id}")

    def _broker(self) -> str:
        return str(self.rig.config.kafka.bootstrap)


def test_a_false_label_makes_incidents_of_its_kind_rarer_and_a_true_one_takes_it_back(
    embedded_rig: Callable[..., Rig],
) -> None:
    rig = embedded_rig(snapshot_every_s=0.5)
    gang = Gang(rig)
    worker = rig.worker()
    gang.ticks(10)
    gang.slow(worker, 0)
    gang.slow(worker, 1)
    assert gang.named() == {0, 1}
    assert gang.left() == set(), "one sign moves nothing before it has lasted a minute"
    gang.label(worker, 0, "--false")
    gang.slow(worker, 2)
    assert gang.named() == {0, 1}, "held back by the label"
    gang.slow(worker, 3, MUCH)
    assert gang.named() == {0, 1, 3}, "far beyond the limit, whatever people said"
    assert worker.terminate() == 0
    worker = rig.worker()
    gang.slow(worker, 4)
    assert gang.named() == {0, 1, 3}, "a worker that starts again knows the label"
    gang.label(worker, 0, "--true")
    gang.slow(worker, 5)
    assert gang.named() == {0, 1, 3, 5}
    assert gang.left() & {2, 4} == set(), "what is no incident moves nothing"
    assert START_NS < max(i.onset_ns for i in gang.incidents().values()) < START_NS + gang.index * 10**9
