"""The cell lane: proposals in, decisions out."""

from flyball_streams.engine.cell.lane import CellLane as CellLane
