"""Usage from the frames to a proposal for other resources, its decision, and a restart in between."""

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.streams.engine.scene import CONFIG, PERIOD_NS, Agent, Cell, Out, Values, inventory, spec

from flyball_contracts.metrics import USAGE
from flyball_contracts.records import Allocation, Demand, Device, Inventory, Proposal, Scale, Usage
from flyball_streams.engine import Incoming, Lane
from flyball_streams.engine.parameters import RightsizingParameters
from flyball_streams.engine.workload.merge import merge

H100 = "NVIDIA H100 80GB HBM3"
GIB = 2**30
EVERY = 10
"""Ticks from one that is fed to the next; the first is at 9, so that some of them end a minute."""
IDLE = Values({"nvidia.gpu.sm.activity": 0.08, "hw.gpu.memory.usage": 6.0 * GIB})
HOST = {"cpu.time": 5.0, "cpu.limit": 8.0, "memory.working_set": 20.0 * GIB, "memory.limit": 64.0 * GIB}


def node(mig: str = "", name: str = "n1", **changes: Any) -> Inventory:
    whole = Device(id=f"{name}/0", model=H100, memory_bytes=80 * GIB, mig_enabled=bool(mig))
    part = Device(id=f"{name}/mig", model=H100, memory_bytes=10 * GIB, parent=whole.id, mig_profile=mig)
    devices = (whole, part) if mig else (whole,)
    held = (Allocation(workload="chat", replica=f"{name}/chat", devices=(len(devices) - 1,)),)
    return inventory(name, devices=devices, allocations=held, price_usd_per_hour=4.0, **changes)


def usage_frame(agent: Agent, index: int, columns: dict[str, float]) -> Incoming:
    block = np.full((len(agent.inventory.allocations), len(USAGE)), np.nan, np.float32)
    for name, value in columns.items():
        block[:, USAGE.column(f"container.{name}")] = value
    agent.seq += 1
    return agent.frame(index, block, USAGE.schema, agent.seq - 1, period_ns=EVERY * PERIOD_NS)


def run(cell: Cell, first: int, until: int, *, shown: Values = IDLE, host: dict[str, float] | None = None) -> Out:
    """Ticks, with what the replicas use of the host in each; none without ``host``."""
    out = Out([])
    for index in range(9 + first, 9 + until, EVERY):
        for agent in cell.agents:
            batch = agent.frames(index, shown)
            if host:
                batch.append(usage_frame(agent, index, host))
            out.messages.extend(cell.feed(batch).messages)
    return out


def cell(*nodes: Inventory, **changes: Any) -> Cell:
    given: dict[str, Any] = {"every_s": 600.0, "after_s": 120.0}
    settings = RightsizingParameters(**(given | changes))
    config = msgspec.structs.replace(CONFIG, rightsizing=settings)
    return Cell(*(nodes or (node(),)), records=[spec("chat", cold_start_s=2.0)], config=config)


def lanes(of: Cell) -> list[Lane]:
    return [*of.engine.nodes.values(), *of.engine.workloads, *of.engine.cells]


def resizes(out: Out) -> list[Proposal]:
    return [p for p in out.proposals() if p.action == "resize"]


def test_frames_become_usage_once_a_minute() -> None:
    here = cell(node(), node(name="n2", epoch=1))
    out = run(here, 0, 60, host=HOST)
    (reported,) = [d.usage for d in out.demands() if d.usage is not None]
    host = Usage(cpu=0.5, cpu_limit=8.0, memory_bytes=20.0 * GIB, memory_limit_bytes=64.0 * GIB)
    share = reported.gpu_share
    assert share == pytest.approx(0.08)
    assert reported == msgspec.structs.replace(host, gpu_share=share, gpu_memory_bytes=6.0 * GIB)
    assert here.stats.ignored == 0
    assert here.stats.gaps == 0
    late = here.agents[0]
    here.feed([usage_frame(late, 0, HOST)])  # its tick is closed
    assert here.stats.ignored == 1


def test_usage_of_one_holder_is_not_the_next_ones() -> None:
    here = cell()
    run(here, 0, 20, shown=Values({"hw.gpu.memory.usage": 70.0 * GIB}))
    moved = node(epoch=2)
    held = (Allocation(workload="other", replica="other-0", devices=(0,)),)
    here.agents[0].inventory = msgspec.structs.replace(moved, allocations=held)
    here.engine.directory.apply(here.agents[0].inventory)
    reported = [d.usage for d in run(here, 20, 90).demands() if d.workload == "other" and d.usage]
    assert [u.gpu_memory_bytes for u in reported] == [6.0 * GIB] * len(reported)
    assert reported


def test_it_advises_a_slice_and_less_memory_rarely_and_decides_nothing() -> None:
    here = cell()
    out = run(here, 0, 1100, host=HOST)
    first, *others = resizes(out)
    assert first.resources is not None
    assert first.resources.gpu_profile == "1g.10gb"
    assert first.resources.memory_bytes is not None
    assert 20 * GIB < first.resources.memory_bytes < 32 * GIB
    assert first.resources.cpu is not None
    assert 0.5 <= first.resources.cpu < 1.0
    assert first.expected_saving == pytest.approx(1 - 1 / 7)
    assert "1g.10gb of NVIDIA H100 80GB HBM3 instead of the whole of it" in first.reason
    assert {"memory.request", "memory.used.p90", "cpu.half_life", "gpu.saved"} <= {e.name for e in first.evidence}
    assert len(others) <= 1  # once in ten minutes
    assert out.of(Scale) == []


def test_it_acts_when_reported_to_and_its_decision_keeps_the_replicas() -> None:
    here = cell(mode="act")
    out = run(here, 0, 700, host=HOST)
    (scale,) = [s for s in out.of(Scale) if s.resources is not None]
    assert (scale.replicas, scale.replicas_before) == (1, 1)
    assert scale.resources == resizes(out)[0].resources
    assert scale.expected.gpus == pytest.approx(-(1 - 1 / 7))
    assert scale.expected.cost_usd_per_hour == pytest.approx(-4.0 * (1 - 1 / 7))


def test_a_slice_that_is_too_small_is_to_grow() -> None:
    here = cell(node(mig="1g.10gb"))
    busy = Values({"nvidia.gpu.sm.activity": 0.95, "hw.gpu.memory.usage": 9.0 * GIB})
    (proposal,) = resizes(run(here, 0, 600, shown=busy))
    assert proposal.resources is not None
    assert proposal.resources.gpu_profile == "2g.20gb"
    assert proposal.resources_before is not None
    assert proposal.resources_before.gpu_profile == "1g.10gb"
    assert proposal.resources.memory_bytes is None
    assert proposal.expected_saving is not None
    assert proposal.expected_saving < 0


@pytest.mark.parametrize("changes", [{"mode": "off"}, {"after_s": 1e6}])
def test_it_keeps_quiet(changes: dict[str, Any]) -> None:
    assert resizes(run(cell(**changes), 0, 600, host=HOST)) == []


def test_an_oom_kill_asks_for_more_than_the_limit() -> None:
    killed = {"memory.working_set": 15.0 * GIB, "memory.limit": 16.0 * GIB, "memory.oom": 1.0}
    (proposal,) = resizes(run(cell(), 0, 600, host=killed, shown=Values()))
    assert proposal.resources is not None
    assert proposal.resources.memory_bytes is not None
    assert proposal.resources.memory_bytes > 1.2 * 16 * GIB


def test_nobody_can_tell_that_it_was_restarted() -> None:
    whole, before, after = cell(), cell(), cell()
    expected = run(whole, 0, 700, host=HOST).messages
    got = run(before, 0, 230, host=HOST).messages
    run(after, 0, 10)  # so that it has its lanes
    for mine, theirs in zip(lanes(after), lanes(before), strict=True):
        mine.restore(theirs.snapshot())
    after.agents = before.agents
    got += run(after, 230, 700, host=HOST).messages
    assert [m.value for m in got] == [m.value for m in expected]


def test_usage_of_several_lanes_is_the_most_and_kills_add_up() -> None:
    def published(**used: float) -> dict[str, Demand]:
        return {"chat": Demand(workload="chat", replicas=1, ready=1, devices=1, usage=Usage(**used))}

    merged = merge({"a": published(cpu=1.0, oom=1.0), "b": published(cpu=3.0, gpu_share=0.5, oom=2.0)})
    assert merged["chat"].usage == Usage(cpu=3.0, gpu_share=0.5, oom=3.0)
