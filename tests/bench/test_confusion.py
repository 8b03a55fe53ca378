"""The confusion matrix of `bench/anomaly.py`: ten causes are injected, and each story is one count in one column."""

from typing import Any

import numpy as np
from bench import anomaly
from bench.anomalies import confusion
from bench.anomalies.injected import CAUSES, MEMORY, Story

from flyball_contracts.metrics import GPU
from flyball_contracts.records import Incident, Symptom
from flyball_simulator import Fleet

SEEN = Symptom(detector="d", cause="gpu", strength="fault", severity="critical", since_ns=1, time_ns=1)


def incident(level: Any, cause: Any, **place: Any) -> Incident:
    return Incident(
        id="i", cell="c", revision=1, status="open", severity="critical", cause=cause, strength="fault", level=level,
        onset_ns=1, seen_ns=1, time_ns=1, summary="s", symptoms=(SEEN,), **place,
    )  # fmt: skip


def test_all_ten_causes_are_drawn_at_places_that_the_fleet_has() -> None:
    fleet = Fleet(anomaly.racked(1), anomaly.START_NS)
    warm = confusion.Warm(fleet, [], [], [], frozenset())
    drawn = list(confusion.stories(warm, 2, 7))
    assert {s.cause for s in drawn} == set(CAUSES)
    assert len(CAUSES) == 10
    known = {n.node for n in fleet.nodes} | {d.id for n in fleet.nodes for d in n.devices}
    known |= {n.rack for n in fleet.nodes} | {n.leaf for n in fleet.nodes}
    assert {s.place for s in drawn} <= known
    assert [s._replace(change=None) for s in drawn] == [
        s._replace(change=None) for s in confusion.stories(warm, 2, 7)
    ], "the same seed draws the same"
    leak = next(s for s in drawn if s.cause == "gpu_memory")
    node = next(n for n in fleet.nodes if leak.place in {d.id for d in n.devices})
    values = np.full((len(node.devices), len(GPU)), 0.5, np.float32)
    assert leak.change is not None
    leak.change({(node.node, GPU.schema): values}, 1e4, np.random.default_rng(1))
    assert (values[:, MEMORY] == 1.0).sum() == 1


def test_a_story_is_right_only_at_its_place_and_by_its_cause() -> None:
    one, node = Story("pcie", "k", "GPU-1", "train"), Story("host", "k", "node-1", "train")
    gpu = incident("gpu", "pcie", device="GPU-1", node="node-1")
    assert confusion.judged(one, [gpu])["got"] == "pcie"
    assert confusion.judged(one, [incident("link", "nvlink", link="GPU-0|GPU-1")])["got"] == "nvlink"
    assert confusion.judged(node, [gpu])["got"] == confusion.OTHER, "a GPU of the node is not the node"
    assert confusion.judged(node, [gpu, incident("node", "host", node="node-1")])["got"] == "host"
    assert confusion.judged(one, [])["got"] == confusion.MISSED
    rows = [confusion.judged(s, f) for s, f in ((one, [gpu]), (one, []), (node, [gpu]))]
    columns, counts = confusion.matrix(rows)
    assert columns == [*CAUSES, confusion.OTHER, confusion.MISSED]
    assert counts["pcie"] == {"pcie": 1, confusion.MISSED: 1}
    assert counts["host"] == {confusion.OTHER: 1}
    found = confusion.summary(rows)
    assert (found["stories"], found["ranks"]) == (3, 3)
    assert found["cause_right"] == found["rank_right"] == 1 / 3
    (title, shown, lines), _ = confusion.described([*rows, found])
    assert "right in 33.3% of 3" in title
    assert shown[0] == "injected"
    assert ["1" in line for line in lines] == [True, True]
