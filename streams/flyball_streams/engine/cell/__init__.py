"""The cell lane: wishes in, decisions out."""

from flyball_streams.engine.cell.lane import CellLane as CellLane
