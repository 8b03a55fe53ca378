"""All models of a cell's tables follow the slots: with growth, for other subjects, and in a snapshot at any tick."""

from typing import Any

import jax
import numpy as np
import pytest
from tests.streams.engine.scene import CELL, CONFIG, Agent, Cell, Values, incoming_records, inventory

from flyball_streams.engine import Directory
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.node.cell import NodeCell
from flyball_streams.engine.node.slot_model import SlotModel


def models(cell: NodeCell) -> list[SlotModel[Any]]:
    return [*cell.gpus.models, *cell.hosts.models]


MODELS = range(len(models(NodeCell(CELL, 0, CONFIG, Directory(), 1))))


def leaves(model: SlotModel[Any]) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.model)]


@pytest.fixture(scope="module")
def grown() -> NodeCell:
    """70 nodes with 3 GPUs each, 60 of which come later; a snapshot is loaded in each of the ticks around."""
    agents = [Agent(inventory(f"node-{i:02}", 3)) for i in range(70)]
    cell = Cell(*(agent.inventory for agent in agents[:10]))
    lane = None
    for i in range(9):
        here = agents[:10] if i < 4 else agents
        if i == 4:
            cell.feed(incoming_records(*(agent.inventory for agent in agents[10:])))
        cell.feed([frame for agent in here for frame in agent.frames(i, Values({"hw.power": 100.0 + i}))])
        lane = cell.engine.nodes[0]
        other = NodeLane(0, cell.engine.config, cell.engine.directory, 1)
        other.restore(lane.snapshot())
        assert other.snapshot() == lane.snapshot()
    assert lane is not None
    return lane.cells[CELL]


@pytest.mark.parametrize("index", MODELS)
def test_arrays_have_the_slots_last(grown: NodeCell, index: int) -> None:
    model = models(grown)[index]
    table = grown.gpus if index < len(grown.gpus.models) else grown.hosts
    assert table.capacity == (256 if table is grown.gpus else 96)
    assert {leaf.shape[-1] for leaf in leaves(model) if leaf.ndim} <= {1, table.capacity}
    assert any(leaf.ndim and leaf.shape[-1] == table.capacity for leaf in leaves(model))


@pytest.mark.parametrize("index", MODELS)
def test_a_slot_of_another_subject_starts_again_and_others_do_not(grown: NodeCell, index: int) -> None:
    model = models(grown)[index]
    before, fresh = leaves(model), [np.asarray(leaf) for leaf in jax.tree.leaves(model.init(model.capacity))]
    model.reset([1])
    for old, new, now in zip(before, fresh, leaves(model), strict=True):
        if old.ndim and old.shape[-1] > 1:
            np.testing.assert_array_equal(now[..., 1], new[..., 1])
            np.testing.assert_array_equal(np.delete(now, 1, -1), np.delete(old, 1, -1))
