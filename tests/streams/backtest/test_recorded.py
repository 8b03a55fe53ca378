"""Demand of a workload in a recording."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.frame import make_frame
from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import Allocation, Device, Inventory, WorkloadSpec
from flyball_streams.backtest.demands.recorded import read_recording
from flyball_streams.recording import RecordingWriter

S = 1_000_000_000
START_NS = 1_700_000_000 * S
HALF = 30
COLUMNS = [WORKLOAD.column(f"flyball.workload.{name}") for name in ("work.rate", "request.rate", "ready")]


def node(cell: str, epoch: int, time_ns: int, *, runs: bool) -> Message:
    device = Device(id=f"{cell}/0", model="x", memory_bytes=1)
    replica = Allocation(workload="w", replica="w-0", devices=(0,))
    return record_message(
        Inventory(
            node=cell, cell=cell, epoch=epoch, time_ns=time_ns, boot_id="b", devices=(device,),
            allocations=(replica,) if runs else (),
        ),
        "/test",
    )  # fmt: skip


def moved(first: str, second: str) -> Iterable[tuple[Message, int]]:
    """A workload of one replica that moves from one cell to another, where it has four times the work."""
    for i in range(2 * HALF):
        home, before, work = (first, second, 0.5) if i < HALF else (second, first, 2.0)
        time_ns = START_NS + i * S
        if i in (0, HALF):
            spec = WorkloadSpec(
                workload="w", cell=home, time_ns=time_ns, kind="inference", capacity_per_replica=1.0, max_replicas=4
            )
            yield record_message(spec, "/test"), time_ns
            for cell in (home, before):
                yield node(cell, 1 + i // HALF, time_ns, runs=cell == home), time_ns
        for cell in (home, before):
            values = np.full((int(cell == home), len(WORKLOAD)), np.nan, np.float32)
            values[:, COLUMNS] = work, 1.0, 1.0
            frame = make_frame(
                values, schema=WORKLOAD.schema, node=cell, boot_id="b", epoch=1, seq=i, time_ns=time_ns + S,
                period_ns=S, inventory_epoch=1 + i // HALF,
            )  # fmt: skip
            yield frame_message(frame), time_ns + S


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_a_workload_that_moves_to_another_cell_keeps_the_order_of_its_demand(
    tmp_path: Path, first: str, second: str
) -> None:
    path = tmp_path / "moved.parquet"
    with RecordingWriter(path, made_by="test") as writer:
        for message, time_ns in moved(first, second):
            writer.add(message, time_ns)
    demand = read_recording(path)["w"]
    steps = demand.work[np.flatnonzero(np.diff(demand.work, prepend=np.nan))]
    assert steps.tolist() == [0.5, 2.0]
    assert demand.start_s == pytest.approx(START_NS / S, abs=2)
