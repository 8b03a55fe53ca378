"""Links that fail are named as the cause, with their number, and a burst of errors is none."""

import math

import numpy as np
import pytest
from tests.streams.engine.scene import START_NS, Agent, Cell, Out, Values, incoming_records, inventory

from flyball_contracts.records import Allocation, Anomaly, Migrate
from flyball_contracts.records.events import node_event
from flyball_streams.engine.node.detectors.links import REPEAT_NS
from flyball_streams.engine.symptoms import symptom_of

NVLINK, PCIE = "nvidia.gpu.nvlink.errors", "nvidia.gpu.pcie.replays"
HELD = (Allocation(workload="train", replica="r0", devices=(0, 1)),)
S = 10**9


class Site:
    def __init__(self, every: int = 1) -> None:
        """A tick is sent in each ``every``-th second."""
        self.agent = Agent(inventory("n", 4, HELD))
        self.cell = Cell(self.agent.inventory)
        self.at, self.every = 0, every

    def tick(self, **errors: list[float]) -> Out:
        """One tick; what each GPU counts of `nvlink` and `pcie`."""
        gpu = {{"nvlink": NVLINK, "pcie": PCIE}[name]: counts for name, counts in errors.items()}
        shown = Values({key: np.array(counts, np.float32) for key, counts in gpu.items()})
        out = self.cell.feed(self.agent.frames(self.at, shown))
        self.at += self.every
        return out

    def tell(self, link: int, count: int) -> None:
        event = node_event("n", START_NS + self.at * S, "nvlink_error", device="n/1", link=link, count=count)
        self.cell.feed(incoming_records(event))


def found(outs: list[Out]) -> list[Anomaly]:
    return [a for out in outs for a in out.of(Anomaly) if a.detector in ("nvlink", "pcie")]


@pytest.mark.parametrize(("name", "detector", "metric"), [("nvlink", "nvlink", NVLINK), ("pcie", "pcie", PCIE)])
def test_errors_that_go_on_name_the_link(name: str, detector: str, metric: str) -> None:
    site = Site()
    site.tick()
    site.tell(7, 12)
    site.tell(3, 90)
    anomalies = found([site.tick(**{name: [0.0, 6.0, math.nan, 0.0]}) for _ in range(30)])
    (one,) = anomalies
    assert (one.detector, one.subject, one.workload, one.node) == (detector, "n/1", "train", "n")
    assert one.evidence[0].name == metric
    assert 20 < one.evidence[0].value <= 30
    links = [(e.name, e.value) for e in one.evidence[1:]]
    assert links == ([(f"{NVLINK}{{link=3}}", 90.0), (f"{NVLINK}{{link=7}}", 12.0)] if name == "nvlink" else [])
    assert all(e.record for e in one.evidence[1:])
    assert one.since_ns == START_NS + 2 * S


def test_a_burst_and_a_trickle_are_no_anomaly_and_nobody_is_moved() -> None:
    site = Site()
    outs = [site.tick(nvlink=[5000.0, 0.0, 0.0, 0.0])]
    outs += [site.tick(nvlink=[1.0 if second % 20 == 0 else 0.0] * 4) for second in range(120)]
    assert found(outs) == []
    outs = [site.tick(pcie=[9.0, 0.0, 0.0, 0.0]) for _ in range(60)]
    assert len(found(outs)) == 1
    assert [m for out in outs for m in out.of(Migrate)] == []


def test_it_is_published_again_after_a_while_and_after_a_restart_as_without() -> None:
    site, other = Site(every=5), Site(every=5)
    for each in (site, other):
        outs = [each.tick(nvlink=[0.0, 9.0, 0.0, 0.0]) for _ in range(8)]
        assert len(found(outs)) == 1
    (lane,) = site.cell.engine.nodes.values()
    lane.restore(lane.snapshot())
    later, without = (
        found([each.tick(nvlink=[0.0, 9.0, 0.0, 0.0]) for _ in range(REPEAT_NS // S // 5)]) for each in (site, other)
    )
    assert len(later) == 1
    assert later == without


@pytest.mark.parametrize(("detector", "metric", "cause"), [("nvlink", NVLINK, "nvlink"), ("pcie", PCIE, "pcie")])
def test_an_anomaly_of_links_is_a_sign_of_its_cause(detector: str, metric: str, cause: str) -> None:
    site = Site()
    outs = [site.tick(**{detector: [0.0, 6.0, 0.0, 0.0]}) for _ in range(30)]
    (one,) = found(outs)
    assert one.evidence[0].name == metric
    symptom = symptom_of(one)
    assert (symptom.cause, symptom.strength) == (cause, "sign")
